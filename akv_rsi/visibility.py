"""What a query sees: the semantics of the ops, without tensors.

`Visibility` is the one interpreter of the contract outside the engine's tensors: policies read
positions from it, the cost model counts attended and refreshed tokens with it, and the engine
validates requests with it. A value is immutable; `append` and `apply` return the next one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from akv_rsi.errors import GuardError, OpError
from akv_rsi.types import Drop, Op, OpHistory, Range, Refresh, Repos, Restore


class Run(NamedTuple):
    """Consecutive tokens ``[start, end)`` of one fate.

    ``position`` is that of ``start``, the others follow; None once the tokens have lost their place
    (dropped before a later Repos). ``epoch`` names the KV version: how many op groups had been
    applied when it was computed.
    """

    start: int
    end: int
    position: int | None
    epoch: int
    visible: bool

    def continues_in(self, later: Run) -> bool:
        """Whether ``later``, which starts where this run ends, is more of the same."""
        if self.visible != later.visible or self.epoch != later.epoch:
            return False
        if self.position is None or later.position is None:
            return self.position is later.position
        return self.position + later.start - self.start == later.position

    def cut(self, start: int, end: int) -> Run:
        """The part of this run inside ``[start, end)``, which it must overlap."""
        start, end = max(start, self.start), min(end, self.end)
        position = None if self.position is None else self.position + start - self.start
        return Run(start, end, position, self.epoch, self.visible)


class Applied(NamedTuple):
    """The state after a group of ops, and the ranges a Refresh really recomputes."""

    visibility: Visibility
    refreshed: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Visibility:
    """The state of a sequence after ``length`` tokens and ``len(past)`` groups of ops.

    ``runs`` tile ``[0, length)``; ``next_position`` is the next token's; ``past[k]`` is the state
    right after group ``k + 1``, from which the past of any KV version can be told.

    >>> state = Visibility().append(10).apply([Drop(10, ((2, 5),)), Repos(10)]).visibility
    >>> state.attended, state.next_position, state.visible_ranges
    (7, 7, ((0, 2), (5, 10)))
    """

    length: int = 0
    next_position: int = 0
    runs: tuple[Run, ...] = ()
    past: tuple[Visibility, ...] = field(default=(), repr=False)

    @classmethod
    def replay(cls, length: int, history: OpHistory, pinned: Sequence[Range] = ()) -> Visibility:
        """The state after ``length`` tokens under ``history``; `OpError` when an op is at fault."""
        state = cls()
        for boundary, ops in history.groups():
            if boundary > length:
                raise OpError(f"{ops[0]} lies past the end of the sequence ({length} tokens)")
            state = state.append(boundary - state.length).apply(ops, pinned).visibility
        return state.append(length - state.length)

    @property
    def epoch(self) -> int:
        """How many groups of ops have been applied."""
        return len(self.past)

    @property
    def attended(self) -> int:
        """Visible tokens."""
        return sum(run.end - run.start for run in self.runs if run.visible)

    @property
    def visible_ranges(self) -> tuple[Range, ...]:
        """The visible tokens as ascending, maximal ranges."""
        return tuple(_merge((run.start, run.end) for run in self.runs if run.visible))

    def visible_in(self, start: int, end: int) -> tuple[Range, ...]:
        """The visible tokens inside ``[start, end)`` as ascending, maximal ranges."""
        clipped = ((max(start, s), min(end, e)) for s, e in self.visible_ranges)
        return tuple((s, e) for s, e in clipped if s < e)

    def placed(self, ranges: Iterable[Range]) -> Iterator[tuple[int, int, int]]:
        """``(start, end, position of start)`` of the stretches of tokens in ``ranges``.

        Positions follow one another within a stretch; tokens that lost their place are left out.
        """
        for start, end in ranges:
            at = max(0, bisect_right(self.runs, start, key=attrgetter("start")) - 1)
            while at < len(self.runs) and self.runs[at].start < end:
                piece = self.runs[at].cut(start, end)
                if piece.position is not None:
                    yield piece.start, piece.end, piece.position
                at += 1

    def append(self, count: int) -> Visibility:
        """The state ``count`` tokens later."""
        if count < 0:
            raise OpError(f"a sequence cannot shrink: append of {count} tokens")
        if count == 0:
            return self
        new = Run(self.length, self.length + count, self.next_position, self.epoch, True)
        runs = (*self.runs[:-1], *_join((*self.runs[-1:], new)))
        return Visibility(new.end, self.next_position + count, runs, self.past)

    def apply(self, ops: Iterable[Op], pinned: Sequence[Range] = ()) -> Applied:
        """The state after the ops of one boundary, which must be ``length``.

        Raises `OpError` for an op the contract forbids and `GuardError` for one that would drop a
        pinned token or leave nothing visible.
        """
        group = OpHistory(tuple(ops))
        kinds = {type(op): op for op in group}
        for op in group:
            if op.boundary != self.length:
                raise OpError(f"{op} is applied at boundary {self.length}")
        if not kinds:
            return Applied(self, ())
        runs, next_position = list(self.runs), self.next_position
        if isinstance(drop := kinds.get(Drop), Drop):
            check_pinned(drop, pinned)
            runs = _set_visible(runs, drop, False)
            if not any(run.visible for run in runs):
                raise GuardError(f"{drop} would leave nothing visible")
        if isinstance(restore := kinds.get(Restore), Restore):
            _check_disjoint(restore, kinds.get(Drop))
            runs = _set_visible(runs, restore, True)
        if Repos in kinds:
            runs, next_position = _reposition(runs)
        elif any(run.visible and run.position is None for run in runs):
            raise OpError(f"{restore} restores tokens that lost their place: add a Repos there")
        state = replace(self, next_position=next_position, runs=tuple(_join(runs)))
        refreshed: list[Range] = []
        if isinstance(refresh := kinds.get(Refresh), Refresh):
            state, refreshed = state._refresh(refresh)
        return Applied(replace(state, past=(*state.past, state)), tuple(_merge(refreshed)))

    def forget(self, ranges: Sequence[Range]) -> tuple[Op, ...]:
        """Ops that equal re-prefilling the text without ``ranges``: Drop, Repos, Refresh."""
        drop = Drop(self.length, tuple(ranges))
        after = self.apply((drop, Repos(self.length))).visibility
        rest = after.visible_in(ranges[0][0], self.length)
        tail: tuple[Op, ...] = (Refresh(self.length, rest),) if rest else ()
        return (drop, Repos(self.length), *tail)

    def _refresh(self, op: Refresh) -> tuple[Visibility, list[Range]]:
        """New versions of the tokens in ``op`` whose past or position is another by now."""
        state, epoch = self, self.epoch + 1
        refreshed: list[Range] = []
        for start, end in op.ranges:
            for piece in [
                run.cut(start, end) for run in self.runs if run.start < end and start < run.end
            ]:
                if not piece.visible:
                    raise OpError(f"{op}: tokens [{piece.start}, {piece.end}) are not visible")
                stale = max(piece.start, state._first_change(piece))
                if stale < piece.end:
                    refreshed.append((stale, piece.end))
                    runs = _split(state.runs, stale, piece.end)
                    fresh = (
                        r._replace(epoch=epoch) if stale <= r.start < piece.end else r for r in runs
                    )
                    state = replace(state, runs=tuple(_join(fresh)))
        return state, refreshed

    def _first_change(self, piece: Run) -> int:
        """The first token up to ``piece.end`` that ``piece``'s KV saw otherwise than it is now.

        A token from there on has another visible past (tokens, versions or positions) or another
        position of its own than when its KV was computed.
        """
        # Refreshed tokens and those appended in the same epoch share one past: the state just after
        # the group, extended by plain appends.
        base = self.past[piece.epoch - 1] if piece.epoch else Visibility()
        then = list(base.runs)
        if base.length < piece.end:
            then.append(Run(base.length, piece.end, base.next_position, piece.epoch, True))
        for now_run, then_run in _aligned(self.runs, then, piece.end):
            if now_run.visible != then_run.visible:
                return now_run.start
            if now_run.visible and now_run[2:4] != then_run[2:4]:
                return now_run.start
        return piece.end


def check_pinned(drop: Drop, pinned: Sequence[Range]) -> None:
    """Raises `GuardError` when ``drop`` touches a pinned range."""
    for start, end in drop.ranges:
        for low, high in pinned:
            if start < high and low < end:
                raise GuardError(
                    f"{drop}: [{start}, {end}) would drop pinned tokens [{low}, {high})"
                )


def _check_disjoint(restore: Restore, drop: Op | None) -> None:
    for low, high in drop.ranges if isinstance(drop, Drop) else ():
        for start, end in restore.ranges:
            if start < high and low < end:
                raise OpError(
                    f"tokens [{max(start, low)}, {min(end, high)}) are dropped and restored at once"
                )


def _set_visible(runs: Sequence[Run], op: Drop | Restore, visible: bool) -> list[Run]:
    """The runs with the op's ranges set, in one sweep over both."""
    edges = [edge for pair in op.ranges for edge in pair]
    out: list[Run] = []
    passed = 0  # edges behind the sweep: an odd number inside a range
    for run in runs:
        start = run.start
        while start < run.end:
            while passed < len(edges) and edges[passed] <= start:
                passed += 1
            stop = min(run.end, edges[passed]) if passed < len(edges) else run.end
            whole = start == run.start and stop == run.end
            piece = run if whole else run.cut(start, stop)
            if passed % 2:
                if piece.visible is visible:
                    state = "visible" if visible else "dropped"
                    raise OpError(f"{op}: tokens [{piece.start}, {piece.end}) are already {state}")
                piece = piece._replace(visible=visible)
            out.append(piece)
            start = stop
    return out


def _reposition(runs: Sequence[Run]) -> tuple[list[Run], int]:
    position, moved = 0, []
    for run in runs:
        moved.append(run._replace(position=position if run.visible else None))
        position += (run.end - run.start) if run.visible else 0
    return moved, position


def _split(runs: Iterable[Run], start: int, end: int) -> list[Run]:
    """The runs, cut so that none crosses ``start`` or ``end``."""
    out: list[Run] = []
    for run in runs:
        if run.end <= start or end <= run.start:
            out.append(run)
            continue
        edges = [edge for edge in (start, end) if run.start < edge < run.end]
        edges = [run.start, *edges, run.end]
        out.extend(run.cut(low, high) for low, high in pairwise(edges))
    return out


def _join(runs: Iterable[Run]) -> Iterator[Run]:
    """The runs, with neighbours that continue each other made one."""
    last: Run | None = None
    for run in runs:
        if last is not None and last.continues_in(run):
            last = Run(last.start, run.end, *last[2:])
            continue
        if last is not None:
            yield last
        last = run
    if last is not None:
        yield last


def _merge(ranges: Iterable[Range]) -> Iterator[Range]:
    last: Range | None = None
    for start, end in ranges:
        if last is not None and last[1] == start:
            last = (last[0], end)
            continue
        if last is not None:
            yield last
        last = (start, end)
    if last is not None:
        yield last


def _aligned(now: Sequence[Run], then: Sequence[Run], end: int) -> Iterator[tuple[Run, Run]]:
    """Both tilings of ``[0, end)`` cut at each other's edges, in step."""
    i = j = start = 0
    while start < end:
        stop = min(now[i].end, then[j].end, end)
        yield now[i].cut(start, stop), then[j].cut(start, stop)
        i, j, start = i + (stop == now[i].end), j + (stop == then[j].end), stop
