"""The plots of a run's report: accuracy over cost, round by round, and the bill."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from akv_rsi.insight.front import pareto_front
from akv_rsi.insight.progress import arms, curve
from akv_rsi.insight.run import Run
from akv_rsi.insight.seen import Seen
from akv_rsi.pages.html import COLOURS, WIDTH, colour_of, dot, key, line, polyline, rect, svg, text
from akv_rsi.types import Usage

_LEFT, _TOP, _TALL = 46, 12, 260
_NAMES = ("cache reads", "cache writes", "other input", "output")


def pareto(run: Run) -> str:
    """Every candidate on its train tasks; the tested ones on the sealed test, larger."""
    points = [(seen, s.ratio, s.accuracy) for seen in run.ran() if (s := run.standing(seen))]
    tested = [
        (seen, s.ratio, s.accuracy)
        for seen in run.policies.values()
        if (s := run.standing(seen, "test"))
    ]
    ratios = [x for _, x, _ in (*points, *tested)] or [1.0]
    low, high = min(ratios) * 0.95, max(1.0, *ratios) * 1.03
    across = _scale(low, high)
    marks = [_axes(low, high), _budget(run, across)]
    front = pareto_front([(x, y) for _, x, y in points])
    marks.append(polyline([(across(x), _up(y)) for x, y in front], COLOURS[7]))
    origins = list(dict.fromkeys(seen.origin for seen, _, _ in points))
    for seen, x, y in points:
        colour = colour_of(origins.index(seen.origin))
        marks.append(dot(across(x), _up(y), 3, colour, _told(run, seen, x, y, "train")))
    for seen, x, y in tested:
        marks.append(dot(across(x), _up(y), 6, COLOURS[6], _told(run, seen, x, y, "test")))
    entries = [(colour_of(i), f"{name}, train tasks") for i, name in enumerate(origins)]
    entries += [(COLOURS[6], "sealed test"), (COLOURS[7], "best trade-offs on train tasks")]
    label = f"{len(points)} candidates: accuracy over cost ratio; the dashed line is the budget"
    return svg(_TALL + 50, "".join(marks), label) + key(entries)


def generations(run: Run) -> str:
    """The best policy of each arm, round by round."""
    lines = {arm: curve(run, arm) for arm in arms(run)}
    last = max((points[-1].round for points in lines.values() if points), default=0) or 1
    across = _scale(0, last)
    marks, told = [_axes(0, last, whole=True)], []
    for number, (arm, points) in enumerate(lines.items()):
        places = [(across(p.round), _up(p.accuracy)) for p in points]
        marks.append(polyline(places, colour_of(number)))
        marks += [dot(x, y, 3, colour_of(number), arm) for x, y in places[-1:]]
        if points:
            told.append(f"{arm} ends at {points[-1].accuracy:.2f} on {points[-1].tasks} tasks")
    label = f"best accuracy by round: {'; '.join(told)}"
    return svg(_TALL + 50, "".join(marks), label) + key(
        (colour_of(number), arm) for number, arm in enumerate(lines)
    )


def parts_of(run: Run, usage: Usage) -> tuple[float, float, float, float]:
    """What cache reads, cache writes, other input and output cost."""
    prices = run.prices
    return (
        prices.read * usage.cached,
        prices.write * usage.written,
        prices.input * (usage.uncached - usage.written),
        prices.output * usage.output,
    )


def bill(run: Run, rows: Sequence[tuple[str, Usage]]) -> str:
    """A bar a policy, as a share of what keeping everything costs."""
    top = max(sum(parts_of(run, usage)) for _, usage in rows)
    marks = []
    for number, (name, usage) in enumerate(rows):
        x, y = 190.0, number * 26 + 4
        marks.append(text(0, y + 14, name[:28]))
        for i, cost in enumerate(parts_of(run, usage)):
            width = (WIDTH - 200) * cost / top
            marks.append(rect(x, y, width, 18, colour_of(i), f"{name}: {_NAMES[i]} {cost:,.0f}"))
            x += width
    drawn = svg(len(rows) * 26 + 6, "".join(marks), "cost of each policy, as in the table")
    return drawn + key((colour_of(i), name) for i, name in enumerate(_NAMES))


def _told(run: Run, seen: Seen, ratio: float, accuracy: float, split: str) -> str:
    name = "keep everything" if seen is run.full else seen.label
    return f"{name}: {accuracy:.3f} at {ratio:.3f} ({split})"


def _scale(low: float, high: float) -> Callable[[float], float]:
    return lambda value: _LEFT + (WIDTH - _LEFT - 14) * (value - low) / ((high - low) or 1)


def _up(accuracy: float) -> float:
    return _TOP + _TALL * (1 - accuracy)


def _axes(low: float, high: float, whole: bool = False) -> str:
    across = _scale(low, high)
    parts = [text(_LEFT, _TOP + _TALL + 34, "round" if whole else "cost ratio")]
    for tick in range(6):
        y, x = _up(tick / 5), low + (high - low) * tick / 5
        parts.append(
            line(_LEFT, WIDTH - 14, y, y) + text(_LEFT - 6, y + 4, f"{tick / 5:.1f}", "end")
        )
        parts.append(
            text(across(x), _TOP + _TALL + 18, f"{x:.0f}" if whole else f"{x:.2f}", "middle")
        )
    return "".join(parts)


def _budget(run: Run, across: Callable[[float], float]) -> str:
    x = across(run.budget)
    dashed = (
        f'<path d="M{x:.1f} {_TOP}V{_TOP + _TALL}" stroke="{COLOURS[6]}" stroke-dasharray="5 4"/>'
    )
    return dashed + text(x + 4, _TOP + _TALL - 6, f"budget {run.budget:g}")
