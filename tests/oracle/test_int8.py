"""KV rounded to 8 bits: what moves pages carries the scales, and moving a key by view adds nothing.

A logit is some 0.1 off the oracle's at most; whatever the pages go through it stays the same, but
for a code that falls to the other side by the last bit of a sum (`FLIP`).
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from akv_rsi.engine.engine import Engine
from akv_rsi.engine.storage import Stored

from .convert import history_of
from .harness import Call, engine_for, forced, rows_of
from .histories import distance, telling_case
from .rounding import errors
from .test_defrag import MOVED, TEXT
from .test_recovery import lose

FLIP = 0.03
OFF = 0.1
# Plain, windows and two rotary bases, partial rotary, layers without positions.
NAMES = ["llama3", "gemma3", "phi3-partial", "smollm3"]


def int8(name: str, **sizes: Any) -> Engine:
    return engine_for(name, **{"kv_dtype": "int8", **sizes})


@pytest.mark.parametrize("name", NAMES)
def test_however_it_is_cut_the_same_codes_are_read(name: str) -> None:
    """PITFALLS 13: keys that are stored rounded are moved without rounding them again."""
    case, engine = telling_case(name, 0), int8(name)
    history = history_of(case.history)
    once = engine.logits(case.tokens, history)
    assert 1e-3 < distance(once, case.expected) < OFF
    stepwise = engine.forced(case.tokens, history, range(1, len(case.tokens)))
    assert distance(stepwise, once) < FLIP


def test_a_repos_by_view_is_no_worse_than_none_and_better_than_by_copy() -> None:
    found = errors("llama3", 16)
    assert found.view < 1.05 * found.plain
    assert found.view < 0.98 * found.copy


def defragmented(passes: int) -> tuple[Tensor, int]:
    """The logits of a call into pages full of holes, and how many tokens moved meanwhile."""
    engine = int8("llama3", restore_passes=passes, working_set_mib=0, pages=128)
    forced(engine, [Call(TEXT, MOVED, 50, 1)])
    call = Call(TEXT, MOVED, 56, 9)
    forced(engine, [call])
    return rows_of(call), engine.stats().relocated


def test_what_defragmentation_moves_keeps_its_scales() -> None:
    (moved, count), (still, none) = defragmented(0), defragmented(1000)
    assert count > 0
    assert none == 0
    assert distance(moved, still) < 1e-4


def test_codes_without_their_scales_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a move that takes the codes only."""

    def copy(stored: Stored, sources: Tensor, targets: Tensor) -> None:
        stored.data.index_copy_(1, targets, stored.data.index_select(1, sources))

    monkeypatch.setattr(Stored, "copy", copy)
    monkeypatch.setattr("akv_rsi.engine.storage.torch.empty", torch.zeros)
    (moved, count), (still, _) = defragmented(0), defragmented(1000)
    assert count > 0
    assert distance(moved, still) > 10 * FLIP


@pytest.mark.parametrize("mode", ["view", "copy"])
def test_forks_evictions_and_recovery_change_nothing(mode: str) -> None:
    """Two paths out of one partial page; then half of all KV is lost and computed again."""
    other = (*TEXT[:54], *TEXT[5:15])

    def calls() -> list[Call]:
        return [Call(TEXT, MOVED, 58, 4), Call(other, MOVED, 58, 4), Call(TEXT, (), 58, 2)]

    alone = calls()
    for call in alone:
        forced(int8("llama3", repos_mode=mode), [call])
    engine = int8("llama3", repos_mode=mode, working_set_mib=0, page_size=1, pages=400)
    forced(engine, [Call(TEXT, MOVED, 55, 1)])
    together, again = calls(), calls()
    forced(engine, together)
    lose(engine, Random(1), 0.5)
    done = forced(engine, again)
    assert sum(one.recovered for one in done) > 0
    for call, *others in zip(alone, together, again, strict=True):
        assert all(distance(rows_of(one), rows_of(call)) < FLIP for one in others)


def test_a_pool_of_int8_takes_little_more_than_a_quarter() -> None:
    pool = int8("llama3")._pool
    assert pool.token_bytes / pool.read_bytes == (16 + 4) / 64
