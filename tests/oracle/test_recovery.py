"""KV that was lost behind a path that is still known: what is computed again, and that it is right.

Pages of one token, so that any set of units can be lost.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from akv_rsi.engine.engine import Engine
from akv_rsi.engine.node import way_to
from akv_rsi.errors import NumericalError

from .harness import Call, engine_for, forced, rows_of
from .histories import TOLERANCE, Case, distance, telling_case
from .units import Unit, Units

some_models = pytest.mark.parametrize("name", ["llama3", "mistral-sliding", "gemma3", "smollm3"])


def lose(engine: Engine, rng: Random, share: float) -> None:
    """Takes the KV of about that share of all units away, as eviction does."""
    pool = engine._cache.pool
    lost = np.array([rng.random() < share for _ in pool.refs]) & (pool.refs > 0)
    engine._cache.tree.strip(lost)
    engine.check()


def lost_units(engine: Engine) -> set[Unit]:
    """The units without KV on the one path in the tree."""
    (end,) = [node for node in engine._cache.tree.nodes() if not node.children]
    return {
        (int(token), step.epoch)
        for step in way_to(end)
        for token in step.tokens[step.node.slots < 0]
    }


def finished(name: str, case: Case, **sizes: int) -> Engine:
    """An engine that has answered most of the case."""
    engine = engine_for(name, page_size=1, pages=400, working_set_mib=0, **sizes)
    forced(engine, [Call(case.tokens, case.history, 44, 1)])
    return engine


@some_models
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(2))
def test_the_closure_is_computed_in_one_pass_and_nothing_else(
    name: str, share: float, seed: int
) -> None:
    case, rng = telling_case(name, seed), Random(f"{name} {share} {seed}")
    engine = finished(name, case)
    lose(engine, rng, share)
    units = Units(case.history, 44)
    needed = units.needed(units.shown[-1], lost_units(engine))
    passes = engine.stats().passes
    call = Call(case.tokens, case.history, 46, 1)
    (done,) = forced(engine, [call])
    assert engine.stats().passes == passes + 1
    assert (done.matched_exact, done.recovered, done.cached) == (44, len(needed), 44)
    assert done.computed == len(needed) + 2
    assert distance(rows_of(call), call.expected(name)) <= TOLERANCE
    assert engine.stats().recovered_tokens == len(needed)


def test_a_loss_that_nobody_reads_costs_nothing() -> None:
    """Dropped tokens whose readers are all there, and those behind the end of a shorter text."""
    case = telling_case("llama", 0)
    engine = finished("llama", case)
    (end,) = [node for node in engine._cache.tree.nodes() if not node.children]
    hidden = {token for token, _ in Units(case.history, 44).sources} - {
        token for token, _ in Units(case.history, 44).shown[-1]
    }
    lost = np.zeros(len(engine._cache.pool.refs), dtype=bool)
    for step in way_to(end):
        lost[step.node.slots[np.isin(step.tokens, sorted(hidden))]] = True
    assert lost.any()
    engine._cache.tree.strip(lost)
    call = Call(case.tokens, case.history, 46, 1)
    (done,) = forced(engine, [call])
    assert (done.recovered, done.computed) == (0, 2)
    assert distance(rows_of(call), call.expected("llama")) <= TOLERANCE


def test_a_recovery_that_gave_no_numbers_leaves_none_behind() -> None:
    """Recovered KV lies on paths that others share: it goes, though the paths stay."""
    case = telling_case("llama", 0)
    engine = finished("llama", case)
    forced(engine, [Call((*case.tokens[:44], 1, 2, 3), case.history, 46, 1)])
    lose(engine, Random(1), 0.5)
    bad = case.tokens[45]
    weight = engine._model.hf.model.embed_tokens.weight
    right = weight[bad].clone()
    weight.data[bad] = float("nan")
    with pytest.raises(NumericalError):
        engine.generate([Call(case.tokens, case.history, 46, 1).request(0)])
    engine.check()
    weight.data[bad] = right
    assert bad not in case.tokens[:45]
    call = Call(case.tokens, case.history, 46, 1)
    (done,) = forced(engine, [call])
    assert done.recovered > 0
    assert distance(rows_of(call), call.expected("llama")) <= TOLERANCE


@some_models
@pytest.mark.parametrize("chunk", [1, 3, 10])
def test_a_recovery_may_be_cut_anywhere(name: str, chunk: int) -> None:
    case = telling_case(name, 1)
    engine = finished(name, case, chunk_tokens=chunk)
    for round_ in range(3):
        lose(engine, Random(round_), 0.6)
        call = Call(case.tokens, case.history, 45 + round_, 1)
        other = Call(case.tokens, case.history, 46, 2)
        forced(engine, [call, other])
        for one in (call, other):
            assert distance(rows_of(one), one.expected(name)) <= TOLERANCE


@some_models
def test_requests_that_miss_the_same_share_what_is_recovered(name: str) -> None:
    case = telling_case(name, 0)
    engine = finished(name, case)
    lose(engine, Random(5), 0.5)
    calls = [Call(case.tokens, case.history, 46, 2) for _ in range(3)]
    done = forced(engine, calls)
    assert done[0].recovered > 0
    assert [one.recovered for one in done[1:]] == [0, 0]
    for call in calls:
        assert distance(rows_of(call), call.expected(name)) <= TOLERANCE
