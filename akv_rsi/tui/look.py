"""Colours and marks, for light and dark; every colour comes with a mark that needs none."""

from __future__ import annotations

from collections.abc import Mapping

from rich.style import Style
from rich.syntax import Syntax
from rich.text import Text

from akv_rsi.insight.cachemap import State
from akv_rsi.insight.run import Run
from akv_rsi.insight.seen import Seen
from akv_rsi.search.candidate import Score
from akv_rsi.tasks.stats import Interval

DARK: Mapping[State, str] = {
    State.COMPUTED: "#f2a33a",
    State.KEPT: "#5b9cf5",
    State.MOVED: "#a98bfa",
    State.REFRESHED: "bold #ff7ac6",
    State.RESTORED: "bold #4cd787",
    State.DROPPED: "bold #ff6b6b",
    State.GONE: "#7d8590",
}
LIGHT: Mapping[State, str] = {
    State.COMPUTED: "#a85a00",
    State.KEPT: "#1f5fbf",
    State.MOVED: "#6d3fc0",
    State.REFRESHED: "bold #b0206f",
    State.RESTORED: "bold #13703d",
    State.DROPPED: "bold #b3261e",
    State.GONE: "#6e7781",
}


def palette(dark: bool) -> Mapping[State, str]:
    """The styles of a map's cells."""
    return DARK if dark else LIGHT


def name_of(run: Run, seen: Seen) -> str:
    """What the screens call a policy."""
    if seen is run.full:
        return "keep everything"
    return "oracle (hindsight)" if seen is run.oracle else seen.label


def highlighted(source: str, dark: bool) -> list[Text]:
    """The lines of a Python source in colours, without a background of their own."""
    syntax = Syntax("", "python", theme="github-dark" if dark else "friendly")
    rows = syntax.highlight(source).split("\n")
    for row in rows:
        row.style = ""
        row.spans = [span._replace(style=_plain(span.style)) for span in row.spans]
    return list(rows)


def _plain(style: str | Style) -> str | Style:
    if isinstance(style, str):
        return style
    return Style(color=style.color, bold=style.bold, italic=style.italic)


def short(value: float) -> str:
    """A share in four characters.

    >>> short(0.948), short(1.0), short(12.3)
    ('.948', '1.00', '12.3')
    """
    return f"{value:.3f}"[1:] if 0 <= value < 0.9995 else f"{value:.2f}"[:4]


def spread(value: Interval) -> str:
    """The limits of an interval.

    >>> spread(Interval(0.9, 0.85, 0.94))
    '.85-.94'
    """
    low, high = (f"{limit:.2f}" for limit in (value.low, value.high))
    return "-".join(limit[1:] if limit.startswith("0.") else limit for limit in (low, high))


def verdict(score: Score, budget: float) -> str:
    """How a score stands to the budget, in words."""
    if score.surely_exceeds(budget):
        return "surely beyond the budget"
    if not score.meets(budget):
        return "beyond the budget by its estimate"
    return "within the budget" if score.likely_meets(budget) else "within the budget, narrowly"
