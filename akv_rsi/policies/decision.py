"""From what a policy asked for to the ops of the contract, however the policy was run."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from akv_rsi.errors import OpError, PolicyCrash
from akv_rsi.policies.ranges import intersect, merge, subtract
from akv_rsi.policies.resident import Asked
from akv_rsi.types import Drop, Op, Range, Refresh, Repos, Restore, Snapshot
from akv_rsi.visibility import Run


def ops_of(asked: Asked, snapshot: Snapshot) -> tuple[Op, ...]:
    """The ops at ``snapshot.boundary``, in canonical order and form: without what has no effect.

    Of a ``drop`` and a ``restore`` of the same tokens the last one holds; ``keep`` cancels drops
    asked for before or after. Raises `PolicyCrash` when a restore lacks the repos it needs.
    """
    boundary, state = snapshot.boundary, snapshot.visibility
    drop, restore = _wanted(asked)
    drop, _ = _by_visibility(state.runs, subtract(drop, _ranges(asked, "keep")))
    _, restore = _by_visibility(state.runs, restore)
    seen, hidden = _by_visibility(state.runs, _ranges(asked, "refresh"))
    refresh = merge([*subtract(seen, drop), *intersect(hidden, restore)])
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


def _by_visibility(runs: Sequence[Run], ranges: Sequence[Range]) -> tuple[list[Range], list[Range]]:
    """The computed tokens of ``ranges``: those that are visible, and those that are hidden."""
    visible: list[Range] = []
    hidden: list[Range] = []
    for start, end in ranges:
        at = max(0, bisect_right(runs, start, key=_start) - 1)
        while at < len(runs) and runs[at].start < end:
            run = runs[at]
            part = (max(start, run.start), min(end, run.end))
            (visible if run.visible else hidden).append(part)
            at += 1
    return merge(visible), merge(hidden)


def _start(run: Run) -> int:
    return run.start


def _ranges(asked: Asked, verb: str) -> list[Range]:
    return merge((start, end) for said, start, end in asked if said == verb)
