"""Faults planted in the engine's own view: the comparison with the oracle must see each.

If one of these tests fails, the comparisons of `test_engine_equals_oracle` prove nothing. Planted
here: an off-by-one mask, a wrong delta, a stale version. Elsewhere: a skipped reference count, a
wrong lock, slot, page or key (`test_pool`, `test_radix`: `check` finds them), a wrong turn of a
copy (`test_copy_mode`), a stale slot after a move (`test_defrag`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from akv_rsi.engine.view import DeltaRun, Keys, View
from akv_rsi.visibility import Applied

from .convert import history_of
from .harness import engine_for
from .histories import TELLING, TOLERANCE, Case, distance, telling_case

Plant = Callable[[pytest.MonkeyPatch, Case], None]
FOUR = ["llama", "qwen3-yarn", "gemma3", "phi3-partial"]


def delta_off_by_one(patch: pytest.MonkeyPatch, case: Case) -> None:
    """One repositioned token is turned one position too far."""

    def keys(view: View) -> Keys:
        tokens, deltas = _columns(view)
        return _keys(view, tokens, deltas + ((tokens == case.moved) & (deltas != 0)))

    patch.setattr(View, "keys", keys)


def mask_bit_left_set(patch: pytest.MonkeyPatch, case: Case) -> None:
    """One dropped token is still read, where its KV was computed."""

    def keys(view: View) -> Keys:
        tokens, deltas = _columns(view)
        if case.hidden < view.length and case.hidden not in tokens:
            place = np.searchsorted(tokens, case.hidden)
            tokens, deltas = np.insert(tokens, place, case.hidden), np.insert(deltas, place, 0)
        return _keys(view, tokens, deltas)

    patch.setattr(View, "keys", keys)


def stale_version_read(patch: pytest.MonkeyPatch, case: Case) -> None:
    """One refreshed token is still read from the slot of its version before."""
    right = View.apply

    def apply(view: View, applied: Applied, slots: Any, *moved: Any) -> None:
        slot, birth = view._slots[case.renewed], view._births[case.renewed]
        right(view, applied, slots, *moved)
        view._slots[case.renewed], view._births[case.renewed] = slot, birth

    patch.setattr(View, "apply", apply)
    patch.setattr(View, "keys", lambda view: _keys(view, *_columns(view)))


def nothing_wrong(patch: pytest.MonkeyPatch, case: Case) -> None:
    """The way the faults are planted does no harm by itself."""
    patch.setattr(View, "keys", lambda view: _keys(view, *_columns(view)))


def _columns(view: View) -> tuple[Any, Any]:
    """The tokens a view shows and how far each stands from its birth position."""
    runs = [run for run in view.state.runs if run.visible]
    tokens = np.concatenate([np.arange(run.start, run.end) for run in runs])
    places = [np.arange(run.end - run.start) + (run.position or 0) for run in runs]
    return tokens, np.concatenate(places) - view._births[tokens]


def _keys(view: View, tokens: Any, deltas: Any) -> Keys:
    runs = tuple(DeltaRun(i, i + 1, int(delta)) for i, delta in enumerate(deltas))
    return Keys(view._slots[tokens], tokens, view._births[tokens] + deltas, runs)


def worst(name: str, case: Case) -> list[float]:
    """Distances from the oracle: at once, and token by token."""
    engine, history = engine_for(name), history_of(case.history)
    once = engine.logits(case.tokens, history)
    stepwise = engine.forced(case.tokens, history, range(1, len(case.tokens)))
    return [distance(once, case.expected), distance(stepwise, case.expected)]


@pytest.mark.parametrize("plant", [delta_off_by_one, mask_bit_left_set, stale_version_read])
@pytest.mark.parametrize("name", FOUR)
def test_a_planted_fault_is_caught(
    name: str, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = telling_case(name, 0)
    plant(monkeypatch, case)
    assert min(worst(name, case)) > TELLING


@pytest.mark.parametrize("name", FOUR)
def test_planting_nothing_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = telling_case(name, 0)
    nothing_wrong(monkeypatch, case)
    assert max(worst(name, case)) <= TOLERANCE
