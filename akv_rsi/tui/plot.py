"""A plot of characters with its legend below, where it hides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static
from textual_plotext import PlotextPlot

# Mark, its colour by number in the terminal's own palette of 256, and what it stands for.
Mark = tuple[str, int, str]


class Plot(Vertical):
    """``begin`` gives an empty figure to draw on, ``end`` shows it."""

    DEFAULT_CSS = """
    Plot PlotextPlot { height: 1fr; }
    Plot Static { height: auto; max-height: 3; text-align: center; }
    """

    def compose(self) -> ComposeResult:
        """Figure and legend."""
        yield PlotextPlot()
        yield Static()

    def begin(self) -> Any:
        """The figure, empty."""
        figure = self.query_one(PlotextPlot).plt
        figure.clear_data()
        figure.clear_figure()
        return figure

    def end(self, marks: Sequence[Mark]) -> None:
        """Shows what was drawn, and what the marks are."""
        legend = Text("  ").join(
            [Text.assemble((mark, f"color({colour})"), f" {name}") for mark, colour, name in marks]
        )
        self.query_one(Static).update(legend)
        self.query_one(PlotextPlot).refresh()
