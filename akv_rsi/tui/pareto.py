"""Accuracy over cost as a plot of characters."""

from __future__ import annotations

from collections.abc import Sequence

from akv_rsi.insight.front import pareto_front
from akv_rsi.insight.run import Run
from akv_rsi.insight.seen import Seen, Standing
from akv_rsi.tasks.episode import Split
from akv_rsi.tui.plot import Plot

# Mark, and colour by its number in the terminal's own palette of 256: clear on dark and on light.
_MARKS = {
    "search": ("●", 33),
    "best-of-n": ("▲", 166),
    "baselines": ("■", 65),
    "keep everything": ("K", 161),
    "oracle": ("O", 35),
    "selected": ("◆", 199),
}


class Pareto(Plot):
    """The policies of a split: which arm each is of, the budget, the front, and the references."""

    DEFAULT_CSS = "Pareto { min-width: 30; }"

    def draw(self, run: Run, rows: Sequence[Seen], split: Split, selected: Seen) -> None:
        """Draws anew."""
        figure, groups = self.begin(), _groups(run, rows, split)
        front = pareto_front([p for points in groups.values() for p in points])
        if len(front) > 1:
            figure.plot([p[0] for p in front], [p[1] for p in front], color=244, marker="·")
        marked = {**groups}
        for name, seen in (("keep everything", run.full), ("oracle", run.oracle)):
            if standing := run.standing(seen, split):
                marked[name] = [_point(standing)]
        if standing := run.standing(selected, split):
            marked["selected"] = [_point(standing)]
        marks = {name: _MARKS.get(name, ("●", 244)) for name in marked}
        for name, points in marked.items():
            xs, ys = zip(*points, strict=True)
            mark, colour = marks[name]
            figure.scatter(xs, ys, marker=mark, color=colour)
        figure.vline(run.budget, color=161)
        figure.xlabel("cost ratio (the line is the budget)")
        figure.title(f"accuracy on {split} tasks")
        self.end([(mark, colour, name) for name, (mark, colour) in marks.items()])


def _point(standing: Standing) -> tuple[float, float]:
    return standing.ratio, standing.accuracy


def _groups(run: Run, rows: Sequence[Seen], split: Split) -> dict[str, list[tuple[float, float]]]:
    groups: dict[str, list[tuple[float, float]]] = {}
    for seen in rows:
        if standing := run.standing(seen, split):
            groups.setdefault(seen.origin or "search", []).append(_point(standing))
    return groups
