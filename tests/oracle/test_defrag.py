"""Defragmentation: survivors move while their sequences decode, and nobody notices but the pool."""

from __future__ import annotations

from typing import Any

import pytest

from akv_rsi.engine.engine import Engine
from akv_rsi.engine.pool import PagePool
from akv_rsi.engine.view import View

from .book import Op
from .harness import Call, engine_for, forced, rows_of
from .histories import TELLING, TOLERANCE, distance
from .models import VOCAB

TEXT = tuple((11 * i + i * i // 3) % VOCAB for i in range(90))
# Of each page of four tokens one is left.
HOLES: tuple[Op, ...] = (("drop", 44, tuple((i, i + 3) for i in range(4, 40, 4))),)
MOVED: tuple[Op, ...] = (*HOLES, ("repos", 44), ("refresh", 44, ((31, 32), (39, 42))))


@pytest.fixture(autouse=True)
def _poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was moved is no number where it was: whoever still reads it there shows."""
    right = PagePool.copy

    def copy(pool: PagePool, sources: Any, targets: Any) -> None:
        right(pool, sources, targets)
        for tensor in (*pool.keys, *pool.values):
            tensor[:, sources] = float("nan")

    monkeypatch.setattr(PagePool, "copy", copy)


def holey(name: str, **sizes: Any) -> Engine:
    """An engine with a finished conversation full of holes."""
    engine = engine_for(name, **{"restore_passes": 0, "pages": 128, **sizes})
    forced(engine, [Call(TEXT, MOVED, 50, 1)])
    return engine


@pytest.mark.parametrize("name", ["llama3", "gemma3", "phi3-partial"])
@pytest.mark.parametrize("mib", [0, 16])
def test_survivors_move_in_a_decode_bubble(name: str, mib: int) -> None:
    """PITFALLS 18: what was moved is read where it is now, by decodes under way and later calls."""
    engine = holey(name, working_set_mib=mib)
    calls = [
        Call(TEXT, MOVED, 56, 9),
        Call(TEXT, MOVED, 57, 7),
        Call(TEXT, (*MOVED, ("drop", 60, ((50, 54),)), ("repos", 60)), 66, 8),
    ]
    free = engine.stats().pages_free
    forced(engine, calls[:2])
    assert engine.stats().relocated > 0
    assert engine.stats().dropped_pages > 0
    assert engine.stats().pages_free > free - 12
    forced(engine, calls[2:])
    for call in calls:
        assert distance(rows_of(call), call.expected(name)) <= TOLERANCE


def test_what_another_path_reads_is_not_dead() -> None:
    engine = holey("llama3")
    calls = [Call(TEXT, (), 56, 4), Call(TEXT, MOVED, 56, 9)]
    for call in calls:
        forced(engine, [call])
    assert engine.stats().relocated == 0
    for call in calls:
        assert distance(rows_of(call), call.expected("llama3")) <= TOLERANCE


def test_young_holes_are_left_for_a_restore() -> None:
    engine = holey("llama3", restore_passes=1000)
    call = Call(TEXT, MOVED, 56, 9)
    forced(engine, [call])
    assert engine.stats().relocated == 0


def test_a_prompt_of_one_token_has_nothing_to_move() -> None:
    engine = engine_for("llama3", restore_passes=0)
    call = Call(TEXT, (), 1, 3)
    forced(engine, [call])
    assert distance(rows_of(call), call.expected("llama3")) <= TOLERANCE


def test_nothing_moves_without_room() -> None:
    engine = holey("llama3", pages=26)
    call = Call(TEXT, MOVED, 56, 9)
    forced(engine, [call])
    assert distance(rows_of(call), call.expected("llama3")) <= TOLERANCE


def test_a_view_that_was_not_told_of_the_move_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a stale slot."""
    monkeypatch.setattr(View, "relocate", lambda view, slots: None)
    engine = holey("llama3", working_set_mib=0)
    call = Call(TEXT, MOVED, 56, 20)
    forced(engine, [call])
    assert engine.stats().relocated > 0
    assert distance(rows_of(call), call.expected("llama3")) > TELLING
