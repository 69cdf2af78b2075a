"""Too little memory: who gives up what, in which order, and that nobody's answer changes."""

from __future__ import annotations

import pytest
import torch

from akv_rsi.engine.engine import Engine
from akv_rsi.engine.request import Completion, Request
from akv_rsi.errors import ContextLimit
from akv_rsi.types import Drop, OpHistory, Refresh, Repos, Restore

from .tiny import VOCAB, engine

TEXT = tuple(torch.randint(VOCAB, (80,), generator=torch.Generator().manual_seed(9)).tolist())


def crowd() -> list[Request]:
    """Eight conversations with ops in their past and at their end, each of its own text."""
    requests = []
    for i in range(8):
        ops = OpHistory(
            (
                Drop(24, ((4 + i, 10 + i),)),
                Repos(24),
                Refresh(24, ((18, 22),)),
                Drop(40, ((20, 22),)),
                Refresh(40, ((30, 38),)),
            )
        )
        text = (*TEXT[i:40], *TEXT[:i])
        requests.append(Request(text, ops, max_new_tokens=24, temperature=0.7, seed=i))
    return requests


def test_a_pool_of_three_fifths_of_the_working_set_gives_the_same_tokens() -> None:
    """PITFALLS 1: KV under pressure; sequences are preempted and recovered, ops included."""
    ample = engine(pages=256)
    expected = [done.tokens for done in ample.generate(crowd())]
    used = 256 - ample.stats().pages_free
    tested = engine(pages=used * 6 // 10)
    numbers = [tested.submit(request) for request in crowd()]
    outcomes: dict[int, object] = {}
    while len(outcomes) < len(numbers):
        outcomes.update(tested.step())
        tested.check()
    assert [outcomes[number].tokens for number in numbers] == expected  # type: ignore[attr-defined]
    stats = tested.stats()
    assert stats.preemptions > 1
    assert stats.recovered_tokens > 0
    assert stats.requests == len(expected)


def test_what_a_preempted_request_computes_again_is_counted_as_recovered() -> None:
    tested = engine(pages=32)
    numbers = [tested.submit(Request(TEXT[i:48], max_new_tokens=30)) for i in range(3)]
    outcomes: dict[int, object] = {}
    while len(outcomes) < 3:
        outcomes.update(tested.step())
    done = [outcomes[number] for number in numbers]
    assert tested.stats().preemptions > 0
    assert any(isinstance(one, Completion) and one.recovered for one in done)
    for one in done:
        assert isinstance(one, Completion)
        assert one.cached == 0
        assert one.computed == one.recovered + 48 - done.index(one)


def test_the_oldest_request_is_never_the_one_that_waits() -> None:
    tested = engine(pages=24)
    first = tested.submit(Request(TEXT[:30], max_new_tokens=40))
    others = [tested.submit(Request(TEXT[i:30], max_new_tokens=30)) for i in range(1, 4)]
    finished = []
    while len(finished) < 4:
        finished += [number for number, _ in tested.step()]
        queued = [sequence.number for sequence in tested._scheduler._waiting]
        assert first not in queued
    assert tested.stats().preemptions > 0
    assert sorted(finished) == [first, *others]


def test_a_request_that_just_fits_an_empty_pool_is_answered() -> None:
    """Alone and short of room, it lets even its own scattered past go."""
    tested = engine(pages=20)
    for end in (7, 18, 29):
        tested.generate([Request((*TEXT[:end], end), max_new_tokens=2)])
    (done,) = tested.generate([Request(TEXT[:50], max_new_tokens=30)])
    assert len(done.tokens) == 30
    assert done.tokens == engine().generate([Request(TEXT[:50], max_new_tokens=30)])[0].tokens
    with pytest.raises(ContextLimit, match="20 pages"):
        tested.generate([Request(TEXT[:50], max_new_tokens=31)])


def talk(tested: Engine, *ops: Drop | Restore | Repos, end: int = 44) -> Completion:
    return tested.generate([Request(TEXT[:end], OpHistory(ops), max_new_tokens=1)])[0]


DROPPED = Drop(40, ((8, 32),))


@pytest.mark.parametrize(("passes", "dropped", "evicted"), [(0, 6, 0), (1000, 0, 6)])
def test_dropped_entries_go_first_once_no_restore_is_to_be_expected(
    passes: int, dropped: int, evicted: int
) -> None:
    """PITFALLS 6: 24 tokens on pages of 4, all dropped, are six pages; an older text is next.

    What stands behind them is not stranded.
    """
    tested = engine(restore_passes=passes, pages=40, working_set_mib=0)
    tested.generate([Request(TEXT[50:80], max_new_tokens=1)])
    talk(tested, DROPPED)
    assert tested._cache.make_room(tested._pool.free_pages + 6)
    stats = tested.stats()
    assert (stats.dropped_pages, stats.evicted_pages >= evicted) == (dropped, True)
    assert bool(stats.evicted_pages) == bool(evicted)
    tested.check()
    again = talk(tested, DROPPED)
    assert (again.cached, again.recovered) == (43, 0)


def test_a_restore_finds_young_entries_and_recovers_old_ones() -> None:
    expected = engine().logits(TEXT[:60], OpHistory((DROPPED, Restore(50, ((8, 32),)))))[-1]
    for passes, recovered in ((1000, 0), (0, 24)):
        tested = engine(restore_passes=passes, pages=40, working_set_mib=0)
        tested.generate([Request(TEXT[50:80], max_new_tokens=1)])
        talk(tested, DROPPED, end=50)
        tested._cache.make_room(tested._pool.free_pages + 1)
        done = talk(tested, DROPPED, Restore(50, ((8, 32),)), end=60)
        assert (done.recovered, done.restored, done.cached) == (recovered, 24, 50)
        got = tested.next_logits(Request(TEXT[:60], OpHistory((DROPPED, Restore(50, ((8, 32),))))))
        assert (got - expected).abs().max() < 1e-4


def test_nothing_is_dead_that_another_path_reads() -> None:
    tested = engine(restore_passes=0, pages=40, working_set_mib=0)
    talk(tested, DROPPED)
    talk(tested)
    tested._cache.make_room(tested._pool.free_pages + 1)
    assert tested.stats().dropped_pages == 0


STATES = ["waiting", "prefilling", "at a boundary", "decoding", "preempted"]


def state_of(tested: Engine, number: int) -> str:
    scheduler = tested._scheduler
    for sequence in scheduler:
        if sequence.number == number:
            if sequence in scheduler._waiting:
                return "preempted" if sequence.tally.length else "waiting"
            if sequence in scheduler._decoding:
                return "decoding"
            at = sequence.boundary == sequence.view.length
            return "at a boundary" if at else "prefilling"
    return "gone"


@pytest.mark.parametrize("state", STATES)
def test_cancel_in_every_state_gives_everything_back(state: str) -> None:
    """PITFALLS 5: cancel, check, go on, then drain to full capacity: pages of 4 leak nothing."""
    tested = engine(pages=45, chunk_tokens=12, max_batch=3)
    numbers = [tested.submit(request) for request in crowd()]
    outcomes: dict[int, object] = {}
    seen = 0
    while len(outcomes) + seen < len(numbers):
        for number in numbers:
            if seen < 2 and state_of(tested, number) == state:
                assert tested.cancel(number)
                assert not tested.cancel(number)
                tested.check()
                seen += 1
        outcomes.update(tested.step())
        tested.check()
    assert seen == 2, f"no request was ever {state}"
    assert all(isinstance(outcome, Completion) for outcome in outcomes.values())
    _drain(tested)


def test_a_finished_request_that_still_closes_cannot_be_cancelled() -> None:
    tested = engine()
    number = tested.submit(Request(TEXT[:20], max_new_tokens=3))
    while not tested.step():
        pass
    assert tested._scheduler._closing
    assert not tested.cancel(number)
    tested.generate([Request(TEXT[30:50], max_new_tokens=2)])
    _drain(tested)


def _drain(tested: Engine) -> None:
    tested._scheduler._release_closing()
    assert not tested._cache.readers
    assert tested._cache.make_room(tested._pool.pages)
    tested.check()
