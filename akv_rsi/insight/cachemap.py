"""The cache of one conversation as a map: a row for each call, a column for each segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from akv_rsi.insight.retrace import Turn, is_edited, retrace
from akv_rsi.tasks.cost import PriceModel
from akv_rsi.types import Range, Segment, Trajectory, Usage
from akv_rsi.visibility import Visibility


class State(Enum):
    """What a call made of a segment, and how it is drawn where there are no colours."""

    ABSENT = " "
    COMPUTED = "█"
    KEPT = "▓"
    MOVED = "▒"
    REFRESHED = "R"
    RESTORED = "↑"
    DROPPED = "x"
    GONE = "·"

    @property
    def words(self) -> str:
        """What it means."""
        return _WORDS[self]


_WORDS = {
    State.ABSENT: "not there yet",
    State.COMPUTED: "computed by this call",
    State.KEPT: "shared from the cache",
    State.MOVED: "from the cache, repositioned",
    State.REFRESHED: "recomputed (refresh)",
    State.RESTORED: "restored",
    State.DROPPED: "dropped before this call",
    State.GONE: "dropped earlier",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A segment as one call saw it; ``visible`` of its tokens were attended to."""

    state: State
    visible: int

    def is_partial(self, segment: Segment) -> bool:
        """Whether only some of its tokens are visible."""
        return 0 < self.visible < segment.tokens


@dataclass(frozen=True, slots=True)
class CacheMap:
    """``cells[i][j]`` is segment ``j`` at call ``i``.

    An edited conversation has no cells: what its policy took out of the text left no trace.
    """

    trajectory: Trajectory
    turns: tuple[Turn, ...]
    cells: tuple[tuple[Cell, ...], ...]

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The columns."""
        return self.trajectory.segments

    def spell(self, column: int) -> list[tuple[int, int, State]]:
        """A column as runs of equal state: ``(first call, end, state)``, without what is absent."""
        runs: list[tuple[int, int, State]] = []
        for row, cells in enumerate(self.cells):
            state = cells[column].state if column < len(cells) else State.ABSENT
            if state is State.ABSENT:
                continue
            if runs and runs[-1][2] is state and runs[-1][1] == row:
                runs[-1] = (runs[-1][0], row + 1, state)
            else:
                runs.append((row, row + 1, state))
        return runs

    def dropped_at(self, column: int) -> int | None:
        """The last call before which the segment was dropped, if it was."""
        rows = [i for i, row in enumerate(self.cells) if column < len(row)]
        at = [i for i in rows if self.cells[i][column].state is State.DROPPED]
        return at[-1] if at else None


def cache_map(trajectory: Trajectory, prices: PriceModel) -> CacheMap:
    """The map of a recorded conversation under ``prices``' own cache, cold at its start."""
    if is_edited(trajectory):
        return CacheMap(trajectory, (), ())
    turns = tuple(retrace(trajectory, prices))
    births: dict[int, int] = {}
    rows = tuple(_row(turn, births) for turn in turns)
    return CacheMap(trajectory, turns, rows)


def total(turns: Sequence[Turn]) -> Usage:
    """What some calls used together."""
    return sum((turn.usage for turn in turns), Usage())


def _row(turn: Turn, births: dict[int, int]) -> tuple[Cell, ...]:
    """The cells of one call; ``births`` collects the position each segment was computed at."""
    before, seen = _by_segment(turn.before, turn.segments), _by_segment(turn.seen, turn.segments)
    cells = []
    for segment, (was, old), (now, position) in zip(turn.segments, before, seen, strict=True):
        fresh = segment.end > turn.hit
        if fresh and position is not None:
            births[segment.id] = position
        elif segment.id not in births and old is not None:
            births[segment.id] = old  # an answer, computed as it was sampled
        known = min(segment.end, turn.before.length) - segment.start
        if now == 0:
            state = State.DROPPED if was else State.GONE
        elif _overlaps(turn.refreshed, segment):
            state = State.REFRESHED
        elif known > 0 and now > was + segment.tokens - known:
            state = State.RESTORED
        elif fresh:
            state = State.COMPUTED
        elif position != births.get(segment.id, position):
            state = State.MOVED
        else:
            state = State.KEPT
        cells.append(Cell(state, now))
    return tuple(cells)


def _by_segment(state: Visibility, segments: Sequence[Segment]) -> list[tuple[int, int | None]]:
    """For each segment its visible tokens, and the position of the first of them."""
    out: list[tuple[int, int | None]] = []
    runs, at = state.runs, 0
    for segment in segments:
        while at < len(runs) and runs[at].end <= segment.start:
            at += 1
        count, first, number = 0, None, at
        while number < len(runs) and runs[number].start < segment.end:
            run = runs[number].cut(segment.start, segment.end)
            if run.visible:
                count += run.end - run.start
                if first is None and run.position is not None:
                    first = run.position - (run.start - segment.start)
            number += 1
        out.append((count, first))
    return out


def _overlaps(ranges: Sequence[Range], segment: Segment) -> bool:
    return any(start < segment.end and segment.start < end for start, end in ranges)
