"""What happened to one segment, in words: what is told of a cell of the cache map."""

from __future__ import annotations

from akv_rsi.insight.cachemap import CacheMap, State
from akv_rsi.insight.causes import Behind, covers, hindsight, later_needs, rules_for
from akv_rsi.types import Drop, Refresh, Restore

_MOST_NEEDS = 3


def cell_story(
    shown: CacheMap,
    oracle: CacheMap | None,
    row: int,
    column: int,
    rules: Behind | None = None,
) -> list[str]:
    """The lines about segment ``column`` at call ``row``, its text last.

    ``rules`` are those of the call that decided on it (`deciding_call`).
    """
    segment = shown.segments[column]
    tool = f" of {segment.tool}" if segment.tool else ""
    marks = [name for name in ("pinned", "ephemeral", "is_error") if getattr(segment, name)]
    about = (
        f"segment {segment.id}: {segment.kind}{tool}, {segment.tokens} tokens, call {segment.turn}"
    )
    lines = [", ".join([about, *marks])]
    if row < len(shown.cells) and column < len(shown.cells[row]):
        cell = shown.cells[row][column]
        partial = f", {cell.visible} of its tokens" if cell.is_partial(segment) else ""
        lines.append(f"at call {row}: {cell.state.words}{partial}")
    else:
        lines.append(f"at call {row}: not there yet")
    lines += _why(shown, row, column, rules or {})
    lines += _need(shown, oracle, row, column)
    return [*lines, "", segment.text]


def deciding_call(shown: CacheMap, row: int, column: int) -> int | None:
    """The last call up to ``row`` whose ops touched the segment."""
    segment = shown.segments[column]
    touched = (
        i for i in range(min(row, len(shown.turns) - 1), -1, -1)
        if any(covers(op, segment) for op in shown.turns[i].call.ops)
    )  # fmt: skip
    return next(touched, None)


def _why(shown: CacheMap, row: int, column: int, rules: Behind) -> list[str]:
    call = deciding_call(shown, row, column)
    if call is None:
        return []
    words = {Drop: "dropped", Restore: "restored", Refresh: "refreshed"}
    lines = []
    for op in shown.turns[call].call.ops:
        if covers(op, shown.segments[column]):
            asked = rules_for(rules, op, shown.segments[column])
            by = ", ".join(f"line {rule.line}: {rule.text}" for rule in asked)
            lines.append(f"{words[type(op)]} before call {call}{f' by {by}' if by else ''}")
    return lines


def _need(shown: CacheMap, oracle: CacheMap | None, row: int, column: int) -> list[str]:
    """Whether it was needed from here on: by hindsight, and by what the agent wrote."""
    lines = []
    until = hindsight(shown, oracle, column)
    if until is not None and oracle is not None:
        whole = until >= len(oracle.cells)
        lines.append(
            "hindsight keeps it to the end" if whole else f"hindsight drops it before call {until}"
        )
    needs = later_needs(shown, column, row)
    for need in needs[:_MOST_NEEDS]:
        lost = f", LOST: {', '.join(need.lost)}" if need.lost else ""
        lines.append(f"call {need.turn} writes {', '.join(need.words)} again{lost}")
    if len(needs) > _MOST_NEEDS:
        lines.append(f"and {len(needs) - _MOST_NEEDS} later calls do")
    gone = row < len(shown.cells) and column < len(shown.cells[row])
    gone = gone and shown.cells[row][column].state in (State.DROPPED, State.GONE)
    if gone and not needs:
        lines.append("nothing of it is written again")
    return lines
