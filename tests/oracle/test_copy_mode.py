"""Copy mode: a Repos leaves turned copies of keys. The same logits from other pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from akv_rsi.engine.batch import Batch
from akv_rsi.engine.engine import Engine

from .convert import history_of
from .harness import Call, engine_for, forced, rows_of
from .histories import TELLING, TOLERANCE, distance, telling_case
from .models import CONFIGS, VOCAB
from .test_engine_equals_oracle import assert_exact, conversation

every_model = pytest.mark.parametrize("name", CONFIGS)
some_models = pytest.mark.parametrize("name", ["llama3", "gemma3", "smollm3"])

TEXT = tuple((7 * i + i * i // 5) % VOCAB for i in range(60))
MOVED = (("drop", 20, ((4, 9),)), ("repos", 20))
TWICE = (*MOVED, ("drop", 36, ((12, 15),)), ("repos", 36))


def copying(name: str, **sizes: Any) -> Engine:
    return engine_for(name, repos_mode="copy", **sizes)


@every_model
def test_one_shot_step_by_step_and_call_by_call(name: str) -> None:
    case, engine = telling_case(name, 0), copying(name)
    history = history_of(case.history)
    assert distance(engine.logits(case.tokens, history), case.expected) <= TOLERANCE
    cuts = range(1, len(case.tokens))
    assert distance(engine.forced(case.tokens, history, cuts), case.expected) <= TOLERANCE
    calls = conversation(case)
    for call in calls:
        forced(engine, [call])
    assert_exact(name, calls)


@some_models
@pytest.mark.parametrize("seed", range(1, 4))
def test_it_equals_view_mode_under_pressure_from_the_pages_alone(name: str, seed: int) -> None:
    cases = [telling_case(name, seed), telling_case(name, seed + 1)]
    for mode in ("view", "copy"):
        engine = engine_for(
            name, repos_mode=mode, pages=40, working_set_mib=0, restore_passes=0, chunk_tokens=9
        )
        for turn in range(4):
            calls = [conversation(case)[turn] for case in cases]
            forced(engine, calls)
            assert_exact(name, calls)


def used(engine: Engine, *history: Any) -> int:
    """Pages that an answer under ``history`` leaves in use."""
    forced(engine, [Call(TEXT, history, 50, 1)])
    return 256 - engine.stats().pages_free


def test_a_repos_takes_no_page_in_view_mode_and_copies_in_copy_mode() -> None:
    sizes: dict[str, Any] = {"working_set_mib": 0, "page_size": 1}
    drop = MOVED[0]
    assert used(engine_for("llama", **sizes), *MOVED) == used(engine_for("llama", **sizes), drop)
    # Behind the gap 11 tokens move to the left.
    assert used(copying("llama", **sizes), *MOVED) == used(copying("llama", **sizes), drop) + 11


def test_copies_are_made_from_birth_never_from_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """PITFALLS 12: a second shift starts from where the key was computed."""
    made: list[tuple[Any, Any, Any]] = []
    right = Batch.add_copies

    def add_copies(batch: Batch, *part: Any) -> None:
        made.append(part)
        right(batch, *part)

    monkeypatch.setattr(Batch, "add_copies", add_copies)
    engine = copying("llama3", working_set_mib=0)
    calls = [Call(TEXT, TWICE, 30, 2), Call(TEXT, TWICE, 50, 3)]
    for call in calls:
        forced(engine, [call])
    assert_exact("llama3", calls)
    (_, first, once), (again, _, twice) = made
    assert not np.isin(again, first).any()
    assert set(once.tolist()) == {-5}
    assert set(twice.tolist()) == {-5, -8, -3}


def test_a_position_version_that_was_evicted_is_triggered_again() -> None:
    engine = copying("gemma3", working_set_mib=0)
    calls = [Call(TEXT, TWICE, 42, 1), Call(TEXT, TWICE, 50, 2), Call(TEXT, TWICE, 55, 2)]
    done = [forced(engine, [calls[0]])[0]]
    engine._cache._evict_moved(256)
    engine.check()
    done += [forced(engine, [call])[0] for call in calls[1:]]
    matched = [(one.matched_exact, one.matched_retrigger, one.recovered) for one in done]
    # Behind the first Repos nothing can be read as it is; before it everything can.
    assert matched == [(0, 0, 0), (20, 22, 0), (51, 0, 0)]
    assert_exact("gemma3", calls)
    assert (engine.stats().matched_exact, engine.stats().matched_retrigger) == (71, 22)
    assert engine.stats().turned_pages > 0


def test_a_match_behind_another_repos_is_exact_where_its_own_version_is_there() -> None:
    """The version of the last Repos counts; that of an earlier one is needed by nobody."""
    engine = copying("llama", working_set_mib=0)
    forced(engine, [Call(TEXT, TWICE, 30, 1)])
    forced(engine, [Call(TEXT, TWICE, 45, 1)])
    first = min(
        (node for node in engine._cache.tree.nodes() if node.moved), key=lambda node: node.since
    )
    engine._cache.tree.forget_moved(first)
    engine.check()
    call = Call(TEXT, TWICE, 50, 1)
    (done,) = forced(engine, [call])
    assert (done.matched_exact, done.matched_retrigger) == (45, 0)
    assert_exact("llama", [call])


def test_versions_go_after_dropped_entries_and_before_leaves() -> None:
    engine = copying("llama", working_set_mib=0, restore_passes=0, pages=64)
    forced(engine, [Call(TEXT[::-1], (), 30, 1)])
    forced(engine, [Call(TEXT, (("drop", 20, ((4, 12),)), ("repos", 20)), 40, 1)])
    stages = []
    for _ in range(4):
        engine._cache.make_room(engine._pool.free_pages + 1)
        stats = engine.stats()
        stages.append([bool(stats.dropped_pages), bool(stats.turned_pages), stats.evicted_pages])
        engine.check()
    assert stages[0] == [True, False, 0]
    assert stages[1] == [True, True, 0]
    assert stages[2][2] > 0


def test_a_wrong_turn_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: each copy stands one position too far."""
    right = Batch.add_copies
    monkeypatch.setattr(
        Batch, "add_copies", lambda batch, s, t, deltas: right(batch, s, t, deltas + 1)
    )
    call = Call(TEXT, TWICE, 50, 3)
    forced(copying("llama3"), [call])
    assert distance(rows_of(call), call.expected("llama3")) > TELLING
