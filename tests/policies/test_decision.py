"""The conversion of what a policy asked for, against a token-by-token reading of it."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from akv_rsi.errors import PolicyCrash
from akv_rsi.policies.decision import ops_of
from akv_rsi.policies.ranges import intersect, merge, subtract
from akv_rsi.types import Drop, Op, Range, Refresh, Repos, Restore, Segment, Snapshot
from akv_rsi.visibility import Visibility

LENGTH, UNCOMPUTED = 30, 6
VERBS = ("drop", "keep", "restore", "refresh", "repos")
RANGES = st.tuples(st.integers(0, LENGTH + UNCOMPUTED), st.integers(1, 12)).map(
    lambda pair: (pair[0], min(pair[0] + pair[1], LENGTH + UNCOMPUTED))
)
ASKED = st.lists(st.tuples(st.sampled_from(VERBS), RANGES).map(lambda a: (a[0], *a[1])), max_size=8)


def tokens(ranges: Iterable[Range]) -> set[int]:
    return {i for start, end in ranges for i in range(start, end)}


def state_of(seed: int) -> Visibility:
    """30 tokens with a random past of drops, repositioning and refreshes; tokens 0 and 29 stay."""
    rng, state = Random(seed), Visibility()
    for _ in range(3):
        state = state.append(LENGTH // 3)
        start = rng.randint(1, state.length - 2)
        gone = state.visible_in(start, min(start + rng.randint(1, 6), state.length - 1))
        ops: list[Op] = [Drop(state.length, gone)] if gone else []
        if rng.random() < 0.4:
            ops.append(Repos(state.length))
        if rng.random() < 0.4:
            left = state.apply(ops).visibility.visible_in(0, state.length)
            ops.append(Refresh(state.length, left[-1:]))
        state = state.apply(ops).visibility
    return state


def snapshot_of(state: Visibility) -> Snapshot:
    text = Segment(0, "user", 0, 0, LENGTH + UNCOMPUTED, "")
    return Snapshot("c", 3, (text,), state, reliable_span=100)


@given(ASKED, st.integers(0, 200))
def test_ops_are_what_was_asked(asked: list[tuple[str, int, int]], seed: int) -> None:
    # The runtime refuses drops of the current turn, here the last token and what is not computed.
    asked = [(verb, s, min(e, LENGTH - 1) if verb == "drop" else e) for verb, s, e in asked]
    state = state_of(seed)
    visible = tokens(state.visible_ranges)
    drop: set[int] = set()
    restore: set[int] = set()
    for verb, start, end in asked:
        span = set(range(start, end))
        if verb == "drop":
            drop, restore = drop | span, restore - span
        elif verb == "restore":
            drop, restore = drop - span, restore | span
    kept = tokens((s, e) for verb, s, e in asked if verb == "keep")
    drop = (drop - kept) & visible
    restore = {i for i in restore if i < LENGTH} - visible
    try:
        ops = ops_of(asked, snapshot_of(state))
    except PolicyCrash:
        lost = [run for run in state.runs if run.position is None]
        assert restore & tokens((run.start, run.end) for run in lost)
        assert not any(verb == "repos" for verb, _, _ in asked)
        return
    by_kind = {type(op): op for op in ops}
    dropped, restored = by_kind.get(Drop), by_kind.get(Restore)
    assert tokens(dropped.ranges if isinstance(dropped, Drop) else ()) == drop
    assert tokens(restored.ranges if isinstance(restored, Restore) else ()) == restore
    applied = state.apply(ops)
    assert tokens(applied.visibility.visible_ranges) == (visible - drop) | restore
    refreshed = by_kind.get(Refresh)
    assert (refreshed.ranges if isinstance(refreshed, Refresh) else ()) == applied.refreshed
    _check_against_the_literal_ops(asked, state, drop, restore, applied.visibility)


def _check_against_the_literal_ops(
    asked: list[tuple[str, int, int]],
    state: Visibility,
    drop: set[int],
    restore: set[int],
    after: Visibility,
) -> None:
    """Leaving out what has no effect leaves the same positions and the same stale tokens."""
    visible = tokens(after.visible_ranges)
    refresh = tokens((s, e) for verb, s, e in asked if verb == "refresh") & visible
    literal: list[Op] = []
    for kind, chosen in ((Drop, drop), (Restore, restore)):
        if chosen:
            literal.append(kind(LENGTH, tuple(merge((i, i + 1) for i in chosen))))
    if any(verb == "repos" for verb, _, _ in asked):
        literal.append(Repos(LENGTH))
    if refresh:
        literal.append(Refresh(LENGTH, tuple(merge((i, i + 1) for i in refresh))))
    assume(literal)
    said = state.apply(literal).visibility
    assert said.next_position == after.next_position
    shown = [[(r.start, r.end, r.position) for r in v.runs if r.visible] for v in (said, after)]
    assert _by_token(shown[0]) == _by_token(shown[1])
    everything = Refresh(LENGTH + 1, said.append(1).visible_ranges)
    assert (
        said.append(1).apply([everything]).refreshed
        == after.append(1).apply([everything]).refreshed
    )


def _by_token(runs: list[tuple[int, int, int | None]]) -> dict[int, int]:
    return {i: (p or 0) + i - s for s, e, p in runs for i in range(s, e)}


@given(st.lists(RANGES, max_size=6), st.lists(RANGES, max_size=6))
def test_arithmetic_of_ranges(left: list[Range], right: list[Range]) -> None:
    a, b = merge(left), merge(right)
    assert tokens(a) == tokens(left)
    assert tokens(intersect(a, b)) == tokens(left) & tokens(right)
    assert tokens(subtract(a, b)) == tokens(left) - tokens(right)
    for result in (a, intersect(a, b), subtract(a, b)):
        assert result == merge(result)


def test_nothing_asked_is_nothing_done() -> None:
    assert ops_of([], snapshot_of(state_of(0))) == ()


@pytest.mark.parametrize("verb", ["keep", "refresh", "restore"])
def test_what_is_not_computed_is_left_out(verb: str) -> None:
    state = Visibility().append(LENGTH)
    assert ops_of([(verb, LENGTH - 2, LENGTH + UNCOMPUTED)], snapshot_of(state)) == ()
