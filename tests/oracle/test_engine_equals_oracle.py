"""The engine gives the oracle's logits, however its work is cut, batched, cached or evicted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random

import pytest

from akv_rsi.engine import dense
from akv_rsi.engine.engine import Engine
from akv_rsi.engine.request import Request

from .book import Book, Op, groups
from .convert import history_of
from .harness import PAGE, Call, engine_for, forced, rows_of
from .histories import TOLERANCE, Case, distance, draw, telling_case
from .models import CONFIGS, VOCAB

every_model = pytest.mark.parametrize("name", CONFIGS)
# One each: plain, windows in every layer, windows and two rotary bases, layers without positions.
some_models = pytest.mark.parametrize("name", ["llama3", "mistral-sliding", "gemma3", "smollm3"])


@cache
def shared_engine(name: str) -> Engine:
    """For tests of `logits` and `forced`, which leave the cache alone."""
    return engine_for(name)


def assert_exact(name: str, calls: list[Call]) -> None:
    for number, call in enumerate(calls):
        assert distance(rows_of(call), call.expected(name)) <= TOLERANCE, f"call {number}"


def conversation(case: Case) -> list[Call]:
    """The case as an agent runs it: every call ends where the next ops happen."""
    calls, start = [], 0
    for end in (*case.boundaries, len(case.tokens)):
        prompt = max(start + 1, end - 5)
        calls.append(Call(case.tokens, case.history, prompt, max(1, end - prompt)))
        start = end
    return calls


def cold_cost(history: Sequence[Op], length: int) -> tuple[int, int, int]:
    """What an empty cache must compute, the refreshed tokens among that, and what is visible."""
    book, refreshed = Book(), 0
    for boundary, ops in groups(history):
        if boundary < length:
            book.append(boundary - book.length)
            refreshed += len(book.apply(ops))
    book.append(length - book.length)
    return length + refreshed, refreshed, len(book.shown())


@every_model
def test_one_shot(name: str) -> None:
    """PITFALLS 14: partial and interleaved rotary, yarn, two bases, against stock transformers."""
    case = telling_case(name, 0)
    logits = shared_engine(name).logits(case.tokens, history_of(case.history))
    assert distance(logits, case.expected) <= TOLERANCE


@every_model
def test_token_by_token(name: str) -> None:
    case = telling_case(name, 0)
    cuts = range(1, len(case.tokens))
    logits = shared_engine(name).forced(case.tokens, history_of(case.history), cuts)
    assert distance(logits, case.expected) <= TOLERANCE


@some_models
def test_cuts_swept_around_the_boundaries(name: str) -> None:
    """PITFALLS 7: what a chunk leaves over must not depend on which side of an op it ends."""
    case = telling_case(name, 1)
    for boundary in case.boundaries:
        for cuts in ([boundary - 1], [boundary], [boundary + 1], [boundary - 1, boundary + 1]):
            logits = shared_engine(name).forced(case.tokens, history_of(case.history), cuts)
            assert distance(logits, case.expected) <= TOLERANCE, cuts


@some_models
@pytest.mark.parametrize("seed", range(3))
def test_a_conversation_call_by_call(name: str, seed: int) -> None:
    """Each call appends to the last; what an earlier call computed comes from the cache."""
    calls, engine = conversation(telling_case(name, seed)), engine_for(name)
    for number, call in enumerate(calls):
        (done,) = forced(engine, [call])
        # All but, perhaps, the last sampled token of the call before: nobody needed its KV.
        before = calls[number - 1]
        assert done.cached >= (before.prompt + before.new - 1 if number else 0)
        assert done.attended == cold_cost(call.history, call.prompt)[2]
    assert_exact(name, calls)


@pytest.mark.parametrize("name", ["llama3", "gemma3"])
def test_chunk_budgets_swept_around_the_boundaries(name: str) -> None:
    """Refreshes are cut too: what is left of one is computed by a later pass."""
    case = telling_case(name, 2)
    budgets = {1, 5} | {b + d for b in case.boundaries for d in (-1, 0, 1)}
    for budget in sorted(budgets):
        calls = [Call(case.tokens, case.history, 45, 3), Call(case.tokens[::-1], (), 20, 5)]
        forced(engine_for(name, chunk_tokens=budget), calls)
        assert_exact(name, calls)


@some_models
def test_batched_with_others_cold_then_cached(name: str) -> None:
    """PITFALLS 15: prefixes, forks of one text under other ops and with other deltas, duplicates
    and strangers, all at once.
    """
    first, second = telling_case(name, 0), telling_case(name, 1)

    def calls() -> list[Call]:
        return [
            Call(first.tokens, first.history, 44, 4),
            Call(first.tokens, (), 40, 8),
            Call(first.tokens, second.history, 43, 5),
            Call(second.tokens, second.history, 45, 3),
            Call(first.tokens, first.history, 44, 4),
            Call(first.tokens, first.history[:1], first.boundaries[0], 12),
            Call(second.tokens[:9], (), 7, 2),
        ]

    engine = engine_for(name)
    cold, warm = calls(), calls()
    forced(engine, cold)
    assert_exact(name, cold)
    for call, done in zip(warm, forced(engine, warm), strict=True):
        assert done.cached == call.prompt - 1, "all is cached; one row gives the logits"
        assert done.refreshed == 0
    assert_exact(name, warm)


@pytest.mark.parametrize("name", ["llama3", "gemma3", "gpt-oss"])
def test_side_by_side_with_values_turned(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of different lengths: some seats empty after the values were laid sideways."""
    monkeypatch.setattr(dense, "PATIENCE", 1)
    case = telling_case(name, 0)
    calls = [Call(case.tokens, (), 30, new) for new in (3, 12, 9)]
    calls += [Call(case.tokens[::-1], (), 31, 8), Call(case.tokens, case.history, 44, 4)]
    forced(engine_for(name), calls)
    assert_exact(name, calls)


@every_model
def test_what_a_cold_call_costs(name: str) -> None:
    """Each token once, and each refreshed one once more, unless its refresh changes nothing."""
    case = telling_case(name, 0)
    call = Call(case.tokens, case.history, 46, 2)
    (done,) = forced(engine_for(name), [call])
    assert (done.computed, done.refreshed, done.attended) == cold_cost(call.history, 46)
    assert done.cached == 0
    assert_exact(name, [call])


@some_models
def test_ops_put_into_a_past_that_is_already_cached(name: str) -> None:
    """PITFALLS 2: what is cached behind a change of history is found by those who never had it."""
    case, engine = telling_case(name, 2), engine_for(name)
    calls = [
        Call(case.tokens, (), 30, 18),
        Call(case.tokens, case.history, 46, 2),
        Call(case.tokens, (), 46, 2),
    ]
    done = [forced(engine, [call])[0] for call in calls]
    assert [d.cached for d in done] == [0, case.boundaries[0], 45]
    assert_exact(name, calls)


@some_models
def test_eviction_under_pressure_changes_nothing(name: str) -> None:
    """PITFALLS 1: a pool that holds barely one of the conversations at a time."""
    cases = [telling_case(name, seed) for seed in range(3)]
    engine = engine_for(name, pages=100 // PAGE, max_batch=2)
    for turn in range(4):
        calls = [conversation(case)[turn] for case in cases]
        forced(engine, calls)
        assert_exact(name, calls)
    assert engine.stats().evicted_pages > 0


def one_shot_and_stepwise(seed: int) -> None:
    """A random history, at once and in random passes, the pages of any size."""
    rng = Random(seed)
    history = history_of(draw(rng, 44, rng.randint(1, 5))[0])
    tokens = [rng.randrange(VOCAB) for _ in range(44)]
    engine = shared_engine("gemma3")
    cuts = sorted(rng.sample(range(1, 44), rng.randint(3, 12)))
    stepwise = engine.forced(tokens, history, cuts)
    assert distance(engine.logits(tokens, history), stepwise) <= TOLERANCE, seed


@pytest.mark.parametrize("block", range(5))
def test_step_by_step_equals_one_shot(block: int) -> None:
    """PITFALLS 16: where a pass ends must not matter."""
    for seed in range(10 * block, 10 * block + 10):
        one_shot_and_stepwise(seed)


@pytest.mark.slow
def test_step_by_step_equals_one_shot_for_more() -> None:
    for seed in range(50, 200):
        one_shot_and_stepwise(seed)


def test_tenants_share_nothing() -> None:
    """PITFALLS 9: another tenant's prefix cannot even be timed."""
    case, engine = telling_case("llama", 0), engine_for("llama")
    calls = [Call(case.tokens, case.history, 44, 4, tenant) for tenant in ("", "a", "a", "b")]
    cached = [forced(engine, [call])[0].cached for call in calls]
    assert cached == [0, 0, 43, 0]
    assert_exact("llama", calls)


def test_a_salt_divides_a_tenant_and_never_passes_for_another() -> None:
    """PITFALLS 8, 10, 11: fields of a key are compared one by one, and nothing is hashed."""
    engine = engine_for("llama")
    domains = [("a", ""), ("", "a"), ("a", "b"), ("b", "a"), ("ab", ""), ("a", "b")]
    cached = []
    for tenant, salt in domains:
        request = Request(tuple(range(20)), max_new_tokens=1, tenant=tenant, salt=salt)
        cached.append(engine.generate([request])[0].cached)
    assert cached == [0, 0, 0, 0, 0, 19]


@pytest.mark.slow
@every_model
@pytest.mark.parametrize("seed", range(1, 17))
def test_many_histories_one_shot_step_by_step_and_call_by_call(name: str, seed: int) -> None:
    case, rng = telling_case(name, seed, length=72), Random(seed)
    history = history_of(case.history)
    cuts = sorted(rng.sample(range(1, 72), 9))
    for logits in (
        shared_engine(name).logits(case.tokens, history),
        shared_engine(name).forced(case.tokens, history, cuts),
        shared_engine(name).forced(case.tokens, history, range(1, 72)),
    ):
        assert distance(logits, case.expected) <= TOLERANCE
    engine = engine_for(name, chunk_tokens=rng.randint(1, 20), page_size=rng.choice([1, 3, 16]))
    calls = conversation(case)
    for call in calls:
        forced(engine, [call, Call([rng.randrange(VOCAB) for _ in range(30)], (), 20, 9)])
    assert_exact(name, calls)
