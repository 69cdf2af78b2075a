"""The engine's face: batching, budgets, limits and failures, one request at a time."""

from __future__ import annotations

import pytest
import torch

from akv_rsi.engine.engine import Engine, Outcome
from akv_rsi.engine.request import Completion, Request
from akv_rsi.errors import ContextLimit, EngineError, NumericalError, OpError
from akv_rsi.types import Drop, OpHistory, Refresh, Repos

from .tiny import VOCAB, engine, model

TEXT = tuple(torch.randint(VOCAB, (60,), generator=torch.Generator().manual_seed(3)).tolist())
EDITED = OpHistory(
    (Drop(30, ((5, 9),)), Repos(30), Drop(40, ((12, 20),)), Repos(40), Refresh(40, ((22, 27),)))
)


def poison(tested: Engine, token: int) -> torch.Tensor:
    """Makes the embedding of a token NaN; returns what it was."""
    weight = tested._model.hf.model.embed_tokens.weight
    before = weight[token].clone()
    with torch.no_grad():
        weight[token] = float("nan")
    return before


def test_a_second_call_computes_only_what_is_new() -> None:
    tested = engine()
    (first,) = tested.generate([Request(TEXT[:30], max_new_tokens=4)])
    assert (first.cached, first.computed, first.attended) == (0, 30, 30)
    known = (*TEXT[:30], *first.tokens)
    drop = OpHistory((Drop(34, ((5, 9),)), Repos(34)))
    (second,) = tested.generate([Request((*known, *TEXT[34:40]), drop, max_new_tokens=1)])
    assert (second.cached, second.computed, second.attended) == (34, 6, 36)
    stats = tested.stats()
    assert (stats.prompt_tokens, stats.cached_tokens, stats.computed_tokens) == (70, 34, 36)
    tested.check()


def test_refreshed_tokens_are_counted_apart() -> None:
    (done,) = engine().generate([Request(TEXT[:45], EDITED, max_new_tokens=1)])
    assert (done.cached, done.computed, done.refreshed) == (0, 50, 5)


@pytest.mark.parametrize("chunk", [1, 2, 29, 30, 31, 39, 40, 41, 2048])
@pytest.mark.parametrize("mib", [0, 1])
def test_budgets_around_the_boundaries_change_nothing(chunk: int, mib: int) -> None:
    expected = engine().generate([Request(TEXT, EDITED, max_new_tokens=6)])[0].tokens
    tested = engine(chunk_tokens=chunk, working_set_mib=mib)
    done = tested.generate([Request(TEXT, EDITED, max_new_tokens=6), Request(TEXT[:50])])
    assert done[0].tokens == expected
    tested.check()


def test_requests_of_one_batch_share_what_is_computed_in_it() -> None:
    done = engine().generate([Request(TEXT[:40], max_new_tokens=1) for _ in range(3)])
    assert [one.computed for one in done] == [40, 1, 1]
    assert len({one.tokens for one in done}) == 1


def test_ops_at_the_end_of_the_prompt_come_after_its_last_logits() -> None:
    last = OpHistory((Drop(40, ((5, 9),)), Repos(40), Refresh(40, ((20, 30),))))
    tested = engine()
    (plain,) = tested.generate([Request(TEXT[:40], max_new_tokens=4)])
    (ended,) = tested.generate([Request(TEXT[:40], last, max_new_tokens=4)])
    assert ended.tokens[0] == plain.tokens[0]
    whole = (*TEXT[:40], *ended.tokens[:-1])
    assert ended.tokens == tuple(tested.logits(whole, last)[39:].argmax(-1).tolist())


def test_the_same_requests_on_a_cold_cache_give_the_same_tokens() -> None:
    requests = [Request(TEXT[: 20 + i], temperature=0.8, seed=i) for i in range(6)]
    tested = engine()
    first = [done.tokens for done in tested.generate(requests)]
    tested.reset()
    assert first == [done.tokens for done in tested.generate(requests)]


def test_a_seeded_request_does_not_depend_on_its_batch() -> None:
    request = Request(TEXT[:30], max_new_tokens=8, temperature=1.0, seed=5)
    (alone,) = engine().generate([request])
    others = [Request(TEXT[i:40], temperature=1.0, seed=i) for i in range(1, 6)]
    assert engine().generate([*others, request])[-1].tokens == alone.tokens


def test_not_a_number_fails_its_own_request_only_and_leaves_no_trace() -> None:
    """The other one shares a prefix that is computed in the same pass, NaN behind it."""
    tested = engine()
    bad, good = TEXT.index(TEXT[50]), TEXT[:20]
    assert TEXT[bad] not in good
    before = poison(tested, TEXT[bad])
    try:
        numbers = [tested.submit(Request(TEXT[:55])), tested.submit(Request(good))]
        outcomes: dict[int, Outcome] = {}
        while len(outcomes) < 2:
            outcomes.update(tested.step())
            tested.check()
        assert isinstance(outcomes[numbers[0]], NumericalError)
        assert f"request {numbers[0]}: " in str(outcomes[numbers[0]])
        assert isinstance(outcomes[numbers[1]], Completion)
    finally:
        with torch.no_grad():
            tested._model.hf.model.embed_tokens.weight[TEXT[bad]] = before
    (healed,) = tested.generate([Request(TEXT[:55])])
    assert healed.cached <= 20, "nothing computed from it is left"


def test_generate_raises_what_failed_after_the_others_are_done() -> None:
    tested = engine()
    before = poison(tested, TEXT[50])
    try:
        with pytest.raises(NumericalError):
            tested.generate([Request(TEXT[:55]), Request(TEXT[:10])])
    finally:
        with torch.no_grad():
            tested._model.hf.model.embed_tokens.weight[TEXT[50]] = before
    assert tested.stats().requests == 1


def test_a_bad_request_among_others_starts_none() -> None:
    tested = engine()
    twice = OpHistory((Drop(20, ((3, 6),)), Drop(25, ((3, 6),))))
    with pytest.raises(OpError, match="request 1: "):
        tested.generate([Request(TEXT), Request(TEXT, twice)])
    assert tested.stats().pages_free == 64
    tested.generate([Request(TEXT)])


def test_limits_of_pool_and_model() -> None:
    small = engine(pages=8)
    with pytest.raises(ContextLimit, match="8 pages"):
        small.generate([Request(TEXT)])
    small.generate([Request(TEXT[:20], max_new_tokens=4)])
    long = (TEXT * 5)[:257]
    with pytest.raises(ContextLimit, match="256 positions"):
        engine(pages=128).submit(Request(long))
    (done,) = engine(pages=128).generate([Request(long[:254], max_new_tokens=9)])
    assert (len(done.tokens), done.finish) == (3, "length")


def test_more_requests_than_the_pool_holds_wait_for_their_turn() -> None:
    tested = engine(pages=20)
    requests = [Request(TEXT[i : i + 40], max_new_tokens=5) for i in range(8)]
    crowded = [done.tokens for done in tested.generate(requests)]
    tested.check()
    assert tested.stats().evicted_pages > 0
    assert crowded == [engine().generate([request])[0].tokens for request in requests]


def test_generate_needs_the_engine_for_itself() -> None:
    tested = engine()
    tested.submit(Request(TEXT))
    with pytest.raises(EngineError, match="in work"):
        tested.generate([Request(TEXT)])


def test_a_broken_pass_leaves_a_cold_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    tested = engine()
    tested.submit(Request(TEXT))
    with monkeypatch.context() as patch:
        patch.setattr(model(), "forward", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            tested.step()
    tested.check()
    assert tested.stats().pages_free == 64
    (done,) = tested.generate([Request(TEXT)])
    assert done.cached == 0


def _interrupt(_: object) -> None:
    raise KeyboardInterrupt


def test_next_logits_go_through_the_cache() -> None:
    tested = engine()
    request = Request(TEXT, EDITED)
    expected = tested.logits(TEXT, EDITED)[-1]
    for _ in range(2):
        assert (tested.next_logits(request) - expected).abs().max() < 1e-4
        tested.check()
    assert tested.stats().pages_free < 64


@pytest.mark.parametrize("cuts", [(), (1,), (29, 30, 31), tuple(range(1, 60))])
def test_scores_are_the_log_probabilities_of_what_follows(cuts: tuple[int, ...]) -> None:
    tested = engine()
    logits = tested.forced(TEXT, EDITED, cuts)
    expected = logits[:-1].log_softmax(-1)[range(59), TEXT[1:]]
    assert torch.allclose(tested.scores(TEXT, EDITED, cuts), expected, atol=1e-5)
    tested.check()
    assert tested.stats().pages_free == tested._config.pages


def test_tails_of_one_pass_are_those_of_passes_of_their_own() -> None:
    tested = engine()
    tested.next_logits(Request(TEXT[:42], EDITED))
    ends = [(*TEXT[:42], *TEXT[50 - i : 58 - i]) for i in range(5)]
    found = tested.tails([Request(tokens, EDITED) for tokens in ends], 3)
    for tokens, tail in zip(ends, found, strict=True):
        assert torch.allclose(tail, tested.logits(tokens, EDITED)[-3:], atol=1e-4)
    tested.check()
    (done,) = tested.generate([Request((*TEXT[:42], 5), EDITED, max_new_tokens=1)])
    assert (done.cached, done.computed) == (42, 1)
    with pytest.raises(EngineError, match="are cached"):
        tested.tails([Request(TEXT[:42], EDITED)], 3)
