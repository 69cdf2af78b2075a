"""From what a policy asked for to the ops of the contract, however the policy was run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from akv_rsi.errors import OpError, PolicyCrash
from akv_rsi.policies.resident import Asked
from akv_rsi.types import Drop, Op, Range, Refresh, Repos, Restore, Snapshot


def ops_of(asked: Asked, snapshot: Snapshot) -> tuple[Op, ...]:
    """The ops at ``snapshot.boundary``, in canonical order and form: without what has no effect.

    Of a ``drop`` and a ``restore`` of the same tokens the last one holds; ``keep`` cancels drops
    asked for before or after. Raises `PolicyCrash` when a restore lacks the repos it needs.
    """
    boundary, state = snapshot.boundary, snapshot.visibility
    visible = state.visible_ranges
    drop, restore = _wanted(asked)
    drop = intersect(subtract(drop, _ranges(asked, "keep")), visible)
    restore = subtract(intersect(restore, [(0, boundary)]), visible)
    refresh = intersect(_ranges(asked, "refresh"), merge([*subtract(visible, drop), *restore]))
    ops: list[Op] = []
    if drop:
        ops.append(Drop(boundary, tuple(drop)))
    if restore:
        ops.append(Restore(boundary, tuple(restore)))
    if any(verb == "repos" for verb, _, _ in asked) and (
        ops or state.next_position > state.attended
    ):
        ops.append(Repos(boundary))
    if refresh or restore:
        return _checked(ops, refresh, snapshot)
    return tuple(ops)


def _checked(ops: list[Op], refresh: list[Range], snapshot: Snapshot) -> tuple[Op, ...]:
    """The ops with a Refresh of just the tokens in ``refresh`` whose KV would change."""
    boundary = snapshot.boundary
    tail = [Refresh(boundary, tuple(refresh))] if refresh else []
    try:
        stale = snapshot.visibility.apply([*ops, *tail]).refreshed
    except OpError as error:
        # Everything else is ruled out by construction.
        raise PolicyCrash(
            "restore of tokens that lost their place in an earlier repos: call repos() with it"
        ) from error
    return (*ops, Refresh(boundary, stale)) if stale else tuple(ops)


def _wanted(asked: Asked) -> tuple[list[Range], list[Range]]:
    """What to drop and what to restore, the last word on each token holding."""
    drop, restore = _ranges(asked, "drop"), _ranges(asked, "restore")
    if not intersect(drop, restore):
        return drop, restore
    drop, restore = [], []
    for verb, start, end in asked:
        if verb == "drop":
            drop, restore = merge([*drop, (start, end)]), subtract(restore, [(start, end)])
        elif verb == "restore":
            drop, restore = subtract(drop, [(start, end)]), merge([*restore, (start, end)])
    return drop, restore


def _ranges(asked: Asked, verb: str) -> list[Range]:
    return merge((start, end) for said, start, end in asked if said == verb)


def merge(ranges: Iterable[Range]) -> list[Range]:
    """Their union: ascending, disjoint, not even touching, none empty.

    >>> merge([(4, 6), (0, 2), (2, 3), (7, 7)])
    [(0, 3), (4, 6)]
    """
    out: list[Range] = []
    for start, end in sorted(r for r in ranges if r[0] < r[1]):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out


def intersect(left: Sequence[Range], right: Sequence[Range]) -> list[Range]:
    """What two merged lists have in common.

    >>> intersect([(0, 5), (7, 9)], [(3, 8)])
    [(3, 5), (7, 8)]
    """
    out, i, j = [], 0, 0
    while i < len(left) and j < len(right):
        start, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if start < end:
            out.append((start, end))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return out


def subtract(left: Sequence[Range], right: Sequence[Range]) -> list[Range]:
    """What the merged list ``left`` has and ``right`` has not.

    >>> subtract([(0, 9)], [(2, 3), (5, 20)])
    [(0, 2), (3, 5)]
    """
    if not left:
        return []
    gaps, at = [], left[0][0]
    for start, end in right:
        if start > at:
            gaps.append((at, start))
        at = max(at, end)
    gaps.append((at, max(at, left[-1][1])))
    return intersect(left, merge(gaps))
