"""Sliding windows count positions as the query sees them, layer by layer (PITFALLS 17).

What a window left behind stays in the pages: a Repos brings it back within reach.
"""

from __future__ import annotations

from typing import Any

import pytest

from akv_rsi.engine import attention, dense, hook
from akv_rsi.engine.attention import LayerCall

from .book import Op
from .convert import history_of
from .harness import engine_for
from .histories import TELLING, TOLERANCE, distance
from .models import VOCAB, tiny
from .oracle import Oracle

TEXT = tuple((13 * i + i * i // 4) % VOCAB for i in range(60))
GAP: Op = ("drop", 34, ((4, 30),))
# With windows of 9 and 11: before the Repos a gap that nothing reaches across, after it the first
# tokens within reach again; then the same a second time.
GAPS: list[Op] = [GAP, ("drop", 50, ((36, 48),))]
CLOSED: list[Op] = [GAP, ("repos", 34), ("drop", 50, ((36, 48),)), ("repos", 50)]
# Windows in every layer; in the first and last of three.
windowed = pytest.mark.parametrize("name", ["mistral-sliding", "gemma3"])


def worst(name: str, history: list[Op]) -> list[float]:
    """The distance from the oracle in one pass, and token by token: from copies and from pages."""
    expected = Oracle(tiny(name)).run(TEXT, history)
    ops, each = history_of(history), range(1, len(TEXT))
    seated, paged = engine_for(name), engine_for(name, working_set_mib=0)
    found = [
        seated.logits(TEXT, ops),
        seated.forced(TEXT, ops, each),
        paged.forced(TEXT, ops, each),
    ]
    return [distance(logits, expected) for logits in found]


@windowed
@pytest.mark.parametrize("history", [GAPS, CLOSED], ids=["gaps", "closed"])
def test_a_gap_empties_a_window_and_a_repos_fills_it(name: str, history: list[Op]) -> None:
    assert max(worst(name, history)) <= TOLERANCE


@windowed
def test_what_the_window_had_left_behind_is_read_again(name: str) -> None:
    """Else the test above would prove little: the two histories differ by much."""
    gaps, closed = (Oracle(tiny(name)).run(TEXT, history) for history in (GAPS, CLOSED))
    assert distance(gaps[34:], closed[34:]) > 10 * TELLING


@windowed
def test_a_window_counted_in_tokens_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: positions as they were before anything was dropped."""
    right = attention._hidden_bias

    def by_token(limits: Any, queries: Any, keys: Any, window: int | None) -> Any:
        # The first keys are those before the gap; all others stand as far behind it as ever.
        return right(limits, queries, keys - 26 * (keys < 4), window)

    monkeypatch.setattr(attention, "_hidden_bias", by_token)
    once, _, paged = worst(name, CLOSED)
    assert min(once, paged) > TELLING


def test_the_window_of_another_layer_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: layer 1, which sees everything, has the window of its neighbours."""
    right = hook.layer_call

    def shifted(module: Any, options: dict[str, Any], rope: str | None) -> LayerCall:
        call = right(module, options, rope)
        return call._replace(window=9) if call.layer == 1 else call

    monkeypatch.setattr(hook, "layer_call", shifted)
    assert min(worst("gemma3", CLOSED)) > TELLING


@windowed
def test_a_working_set_without_windows_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: decoding from copies, every layer sees all of them."""
    right = dense.DenseGroup._hidden
    monkeypatch.setattr(
        dense.DenseGroup, "_hidden", lambda group, seen, window: right(group, seen, None)
    )
    assert worst(name, CLOSED)[1] > TELLING
