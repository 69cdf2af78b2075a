"""A cache map as a drawing, and in words."""

from __future__ import annotations

from akv_rsi.insight.cachemap import CacheMap, State
from akv_rsi.insight.causes import later_needs
from akv_rsi.pages.html import WIDTH, key, rect, svg, text

_COLOURS = {
    State.COMPUTED: "#c2540a",
    State.KEPT: "#4361ee",
    State.MOVED: "#9b5de5",
    State.REFRESHED: "#c2188b",
    State.RESTORED: "#2a8a6b",
    State.DROPPED: "#d62839",
    State.GONE: "#adb5bd40",
}
_LEFT, _RIGHT = 46, 60


def legend() -> str:
    """What the colours mean."""
    return key((colour, state.words) for state, colour in _COLOURS.items())


def drawing(shown: CacheMap, words: str) -> str:
    """Calls downward, segments to the right; ``words`` say the same."""
    rows, columns = len(shown.cells), len(shown.segments)
    tall = min(14.0, max(5.0, 420 / max(rows, 1)))
    wide = (WIDTH - _LEFT - _RIGHT) / max(columns, 1)
    marks = [text(0, 10, "call"), text(WIDTH, 10, "seen", "end")]
    for row in range(0, rows, max(1, round(16 / tall))):
        y = 24 + tall * row
        marks.append(text(_LEFT - 8, y, str(row), "end"))
        marks.append(text(WIDTH, y, str(shown.turns[row].attended), "end"))
    for column, segment in enumerate(shown.segments):
        for start, end, state in shown.spell(column):
            title = f"{segment.kind} {segment.text[:60]}: {state.words}, call {start}"
            title += f" to {end - 1}" if end - start > 1 else ""
            x, y = _LEFT + wide * column, 14 + tall * start
            marks.append(rect(x, y, wide * 0.9, tall * (end - start) - 0.5, _COLOURS[state], title))
    return svg(tall * rows + 24, "".join(marks), words)


def in_words(shown: CacheMap) -> str:
    """What the drawing shows, for those who do not see it."""
    calls, last = len(shown.turns), shown.turns[-1]
    dropped = [c for c in range(len(shown.segments)) if shown.dropped_at(c) is not None]
    missed = [
        c for c in dropped
        if any(need.lost for need in later_needs(shown, c, shown.dropped_at(c) or 0))
    ]  # fmt: skip
    told = (
        f"{calls} calls over {len(shown.segments)} segments; {len(dropped)} of them were dropped. "
        f"The last call attends to {last.attended:,} of {last.call.prompt:,} tokens, at a position "
        f"span of {last.span:,}."
    )
    if missed:
        names = ", ".join(f"#{c}" for c in missed[:5])
        told += f" Words that only dropped segments held were written later: {names}."
    return told
