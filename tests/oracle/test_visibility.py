"""`akv_rsi.visibility` against the oracle's own bookkeeping, one list entry per token."""

from __future__ import annotations

from copy import deepcopy
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from akv_rsi.errors import GuardError, OpError
from akv_rsi.types import Drop, OpHistory, Range, Refresh, Repos, Restore
from akv_rsi.visibility import Visibility

from .book import ORDER, Book, Illegal, Op, groups, members, runs
from .convert import converted, history_of
from .histories import draw, draw_group

PINNED = ((0, 2), (9, 10))


def assert_same(state: Visibility, book: Book) -> None:
    """Every question a caller can ask has the same answer."""
    assert state.length == book.length
    assert state.next_position == book.next_position
    assert state.attended == len(book.shown())
    assert state.visible_ranges == runs(book.shown())
    assert [i for run in state.runs for i in range(run.start, run.end)] == list(range(book.length))
    for run in state.runs:
        for i in range(run.start, run.end):
            place = None if run.position is None else run.position + i - run.start
            assert (run.visible, place) == (book.visible[i], book.position[i]), f"token {i}"


def ranges(last: int) -> st.SearchStrategy[tuple[Range, ...]]:
    """Ranges good and bad: reversed, empty, overlapping, negative, past the end."""
    ends = st.integers(-1, last + 2)
    good = st.sets(st.integers(0, max(last - 1, 0)), min_size=1, max_size=6).map(sorted).map(runs)
    return good | st.lists(st.tuples(ends, ends), max_size=3).map(tuple)


@st.composite
def groups_of_ops(draw_from: st.DrawFn, length: int) -> list[Op]:
    """Ops at ``length``, or just beside it, legal or not."""
    kinds = draw_from(st.lists(st.sampled_from(ORDER), min_size=1, max_size=4, unique=True))
    if draw_from(st.integers(0, 5)):
        kinds.sort(key=ORDER.index)
    at = draw_from(st.sampled_from([length] * 8 + [length + 1, max(length - 1, 0)]))
    return [
        ("repos", at) if kind == "repos" else (kind, at, draw_from(ranges(length)))
        for kind in kinds
    ]


class TwoBookkeepers(RuleBasedStateMachine):
    """Appends and groups of ops, well-formed and not: both accept, both refuse, both agree."""

    def __init__(self) -> None:
        super().__init__()
        self.state = Visibility()
        self.book = Book(PINNED)
        self.history: list[Op] = []

    @rule(count=st.integers(0, 7))
    def append(self, count: int) -> None:
        self.state = self.state.append(count)
        self.book.append(count)

    @rule(seed=st.integers(0, 2**32))
    def apply_legal_ops(self, seed: int) -> None:
        self._apply(draw_group(Random(seed), self._at_new_boundary()))

    @rule(repos=st.booleans(), data=st.data())
    def refresh_some(self, repos: bool, data: st.DataObject) -> None:
        """Often the same tokens again: what changed since may be a version or a position only."""
        book = self._at_new_boundary()
        shown = book.shown()
        start = data.draw(st.integers(0, len(shown) - 1))
        chosen = shown[start : start + data.draw(st.sampled_from([1, 3, book.length]))]
        before: list[Op] = [("repos", book.length)] if repos else []
        self._apply([*before, ("refresh", book.length, runs(chosen))])

    @rule(data=st.data())
    def apply_anything(self, data: st.DataObject) -> None:
        self._apply(data.draw(groups_of_ops(self._at_new_boundary().length)))

    @precondition(lambda self: len(self.book.shown()) > 6)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        self._at_new_boundary()
        shown = [i for i in self.book.shown() if i not in members(PINNED)]
        chosen = data.draw(st.sets(st.sampled_from(shown), min_size=1, max_size=4))
        ops = self.state.forget(runs(sorted(chosen)))
        rest = [i for i in self.book.shown() if i > min(chosen) and i not in chosen]
        at = self.book.length
        mine: list[Op] = [("drop", at, runs(sorted(chosen))), ("repos", at)]
        mine += [("refresh", at, runs(rest))] if rest else []
        assert ops == converted(mine)
        self._apply(mine)

    def _at_new_boundary(self) -> Book:
        """One boundary has one group of ops: a token is appended where the last group was."""
        if not self.book.length or (self.history and self.history[-1][1] == self.book.length):
            self.append(1)
        return self.book

    def _apply(self, ops: list[Op]) -> None:
        book = deepcopy(self.book)
        try:
            changed = book.apply(ops)
        except Illegal:
            with pytest.raises(OpError):
                self.state.apply(converted(ops), PINNED)
            return
        applied = self.state.apply(converted(ops), PINNED)
        assert applied.refreshed == runs(changed)
        self.state, self.book = applied.visibility, book
        self.history += ops

    @invariant()
    def they_agree(self) -> None:
        assert_same(self.state, self.book)

    def teardown(self) -> None:
        replayed = Visibility.replay(self.book.length, history_of(self.history), PINNED)
        assert replayed == self.state


TestTwoBookkeepers = TwoBookkeepers.TestCase
TestTwoBookkeepers.settings = settings(
    max_examples=60, stateful_step_count=18, deadline=None, suppress_health_check=list(HealthCheck)
)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_replaying_a_history_step_by_step_or_at_once_is_the_same(seed: int) -> None:
    history, book = draw(Random(seed), 40, 4)
    state = Visibility()
    for boundary, ops in groups(history):
        state = state.append(boundary - state.length).apply(converted(ops)).visibility
    state = state.append(40 - state.length)
    assert state == Visibility.replay(40, history_of(history))
    assert_same(state, book)


@given(seed=st.integers(0, 2**32), start=st.integers(0, 40), size=st.integers(0, 40))
@settings(max_examples=100, deadline=None)
def test_visible_in_is_the_visible_part_of_a_range(seed: int, start: int, size: int) -> None:
    history, book = draw(Random(seed), 40, 3)
    state = Visibility.replay(40, history_of(history))
    inside = [i for i in book.shown() if start <= i < start + size]
    assert state.visible_in(start, start + size) == runs(inside)


def ten() -> Visibility:
    return Visibility().append(10)


@pytest.mark.parametrize(
    ("ops", "words"),
    [
        ((Drop(10, ()),), "no ranges"),
        ((Drop(10, ((3, 3),)),), "empty, reversed or negative"),
        ((Drop(10, ((5, 3),)),), "empty, reversed or negative"),
        ((Drop(10, ((-1, 3),)),), "empty, reversed or negative"),
        ((Drop(10, ((8, 11),)),), "past its boundary"),
        ((Drop(10, ((3, 6), (5, 7))),), "overlaps or precedes"),
        ((Drop(10, ((5, 7), (3, 4))),), "overlaps or precedes"),
        ((Drop(9, ((3, 4),)),), "applied at boundary 10"),
        ((Drop(10, ((3, 4),)), Drop(10, ((5, 6),))), "out of order"),
        ((Repos(10), Drop(10, ((3, 4),))), "out of order"),
        ((Refresh(10, ((3, 4),)), Repos(10)), "out of order"),
        ((Restore(10, ((3, 4),)),), "already visible"),
        ((Drop(10, ((3, 6),)), Restore(10, ((5, 7),))), "dropped and restored at once"),
        ((Drop(10, ((3, 6),)), Refresh(10, ((5, 7),))), "not visible"),
        ((Drop(10, ((0, 10),)),), "nothing visible"),
    ],
)
def test_each_mistake_is_refused_with_its_reason(ops: tuple[object, ...], words: str) -> None:
    with pytest.raises(OpError, match=words):
        ten().apply(ops)  # type: ignore[arg-type]


def test_a_dropped_token_cannot_be_dropped_again() -> None:
    state = ten().apply([Drop(10, ((3, 6),))]).visibility.append(1)
    with pytest.raises(OpError, match=r"\[5, 6\) are already dropped"):
        state.apply([Drop(11, ((5, 8),))])


def test_a_lost_place_needs_a_repos_to_come_back() -> None:
    lost = ten().apply([Drop(10, ((3, 6),)), Repos(10)]).visibility.append(2)
    with pytest.raises(OpError, match="lost their place"):
        lost.apply([Restore(12, ((3, 6),))])
    back = lost.apply([Restore(12, ((3, 6),)), Repos(12)]).visibility
    assert back.visible_ranges == ((0, 12),)
    assert back.next_position == 12


def test_a_restore_without_a_repos_in_between_needs_none() -> None:
    gap = ten().apply([Drop(10, ((3, 6),))]).visibility.append(2)
    assert gap.apply([Restore(12, ((3, 6),))]).visibility.next_position == 12


def test_pinned_tokens_and_the_last_ones_are_guarded() -> None:
    with pytest.raises(GuardError, match=r"pinned tokens \[0, 4\)"):
        ten().apply([Drop(10, ((3, 6),))], pinned=((0, 4),))
    with pytest.raises(GuardError, match="nothing visible"):
        ten().apply([Drop(10, ((0, 10),))])
    assert ten().apply([Drop(10, ((4, 6),))], pinned=((0, 4), (6, 10))).visibility.attended == 8


def test_an_op_past_the_end_is_refused() -> None:
    with pytest.raises(OpError, match="past the end"):
        Visibility.replay(9, OpHistory((Repos(10),)))
    with pytest.raises(OpError, match="cannot shrink"):
        ten().append(-1)


def test_a_refresh_that_changes_nothing_costs_nothing() -> None:
    state = ten().apply([Drop(10, ((6, 8),))]).visibility
    before = state.append(1).apply([Refresh(11, ((0, 6),))])
    assert before.refreshed == ()
    first = state.append(1).apply([Refresh(11, ((0, 6), (8, 10)))])
    assert first.refreshed == ((8, 10),)
    again = first.visibility.append(1).apply([Refresh(12, ((8, 10),))])
    assert again.refreshed == ()
    moved = again.visibility.append(1).apply([Repos(13), Refresh(13, ((8, 10),))])
    assert moved.refreshed == ((8, 10),)
