"""Refresh, Restore and forget in combination: cold, call by call, shared, lost and recovered."""

from __future__ import annotations

from random import Random

import pytest
import torch

from akv_rsi.visibility import Visibility

from .book import Op
from .convert import history_of
from .harness import Call, engine_for, forced, rows_of
from .histories import TOLERANCE, distance
from .models import VOCAB, tiny
from .test_recovery import lose

TEXT = tuple((13 * i + i * i // 4) % VOCAB for i in range(60))
NOTE = (16, 22)

HISTORIES: dict[str, list[Op]] = {
    "over several drops": [
        ("drop", 24, ((4, 8),)),
        ("drop", 30, ((10, 14),)),
        ("refresh", 30, (NOTE, (25, 28))),
    ],
    "twice over one note": [
        ("drop", 24, ((4, 8),)),
        ("refresh", 24, (NOTE,)),
        ("drop", 34, ((10, 14),)),
        ("refresh", 34, (NOTE,)),
    ],
    "a second time for nothing": [
        ("drop", 24, ((4, 8),)),
        ("refresh", 24, (NOTE,)),
        ("refresh", 34, (NOTE,)),
    ],
    "with repos, before and after": [
        ("drop", 24, ((4, 8),)),
        ("repos", 24),
        ("refresh", 24, (NOTE,)),
        ("drop", 34, ((10, 14), (26, 28))),
        ("repos", 34),
        ("refresh", 40, ((18, 24), (30, 34))),
    ],
    "of a note that read a note": [
        ("drop", 24, ((4, 8),)),
        ("refresh", 24, (NOTE,)),
        ("refresh", 36, ((12, 14), (28, 34))),
        ("drop", 44, (NOTE,)),
        ("refresh", 44, ((30, 40),)),
    ],
    "undone": [
        ("drop", 24, ((4, 12),)),
        ("refresh", 24, (NOTE,)),
        ("restore", 34, ((4, 12),)),
        ("refresh", 34, (NOTE, (26, 30))),
    ],
    "restored to a new place": [
        ("drop", 24, ((4, 12),)),
        ("repos", 24),
        ("restore", 36, ((6, 10),)),
        ("repos", 36),
        ("refresh", 36, ((14, 36),)),
    ],
    # PITFALLS 17: windows of 9 and 11 count positions as the query sees them, layer by layer.
    "a window that a gap empties": [("drop", 30, ((4, 26),)), ("refresh", 30, ((27, 30),))],
    "a window that a repos fills": [
        ("drop", 30, ((4, 26),)),
        ("repos", 30),
        ("refresh", 30, ((27, 30),)),
    ],
}


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
@pytest.mark.parametrize("name", ["mistral-sliding", "gemma3"])
def test_every_combination_is_exact(name: str, history: list[Op]) -> None:
    engine = engine_for(name, page_size=1, pages=300, working_set_mib=0)
    steps = [Call(TEXT, history, end, 2) for end in (26, 33, 42)]
    for call in steps:
        forced(engine, [call])
    pair = [Call(TEXT, history, 50, 3), Call((*TEXT[:47], *TEXT[5:15]), history, 52, 3)]
    forced(engine, pair)
    lose(engine, Random(3), 0.4)
    late = [Call(TEXT, history, 54, 2), Call((*TEXT[:47], *TEXT[5:15]), history, 54, 2)]
    forced(engine, late)
    cold = Call(TEXT, history, 54, 2)
    forced(engine_for(name, chunk_tokens=7), [cold])
    for call in (*steps, *pair, *late, cold):
        assert distance(rows_of(call), call.expected(name)) <= TOLERANCE


def test_a_shared_refresh_is_computed_once_and_an_idle_one_never() -> None:
    engine = engine_for("llama3")
    once = HISTORIES["twice over one note"]
    done = forced(engine, [Call(TEXT, once, 50, 1), Call((*TEXT[:48], 1, 2, 3), once, 50, 1)])
    assert [one.refreshed for one in done] == [12, 0]
    idle = HISTORIES["a second time for nothing"]
    assert forced(engine_for("llama3"), [Call(TEXT, idle, 50, 1)])[0].refreshed == 6


@pytest.mark.parametrize("name", ["llama3", "gemma3", "phi3-partial"])
def test_forget_equals_unmodified_transformers_on_the_trimmed_text(name: str) -> None:
    spans = ((5, 9), (20, 27))
    ops = Visibility().append(40).forget(spans)
    history = history_of([]).extend(ops)
    ours = engine_for(name).logits(TEXT, history)[40:]
    trimmed = [TEXT[i] for i in range(60) if not any(a <= i < b for a, b in spans)]
    with torch.no_grad():
        stock = tiny(name)(input_ids=torch.tensor([trimmed]), use_cache=False).logits[0]
    assert distance(ours, stock[29:]) <= TOLERANCE
