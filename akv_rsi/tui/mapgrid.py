"""The cache map as a grid of characters: calls downward, segments to the right."""

from __future__ import annotations

from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from akv_rsi.insight.cachemap import CacheMap, State
from akv_rsi.tui.look import palette

LABEL, FIGURES = 5, 12
KINDS = {
    "system": "s",
    "tools": "t",
    "user": "u",
    "reasoning": "k",
    "assistant": "a",
    "tool_call": "c",
    "tool_result": "r",
}


class MapGrid(ScrollView, can_focus=True):
    """The cursor is a cell: a call (``row``) and a segment (``column``).

    While it plays, calls after the cursor's are not drawn.
    """

    DEFAULT_CSS = """
    MapGrid { height: 1fr; background: $surface; overflow-x: hidden; scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1, 0)", "earlier", show=False),
        Binding("down,j", "move(1, 0)", "later", show=False),
        Binding("left,h", "move(0, -1)", "left", show=False),
        Binding("right,l", "move(0, 1)", "right", show=False),
        Binding("pageup", "move(-10, 0)", "ten calls up", show=False),
        Binding("pagedown", "move(10, 0)", "ten calls down", show=False),
        Binding("home", "go(0)", "first call", show=False),
        Binding("end", "go(-1)", "last call", show=False),
    ]

    class Moved(Message):
        """The cursor stands on another cell."""

    def __init__(self) -> None:
        super().__init__()
        self.map: CacheMap | None = None
        self.row = self.column = 0
        self.playing = False
        self._left = 0

    def fill(self, shown: CacheMap) -> None:
        """Shows another map."""
        self.map = shown
        self.row = min(self.row, max(0, len(shown.cells) - 1))
        self.column = min(self.column, max(0, len(shown.segments) - 1))
        self.virtual_size = Size(self.size.width, len(shown.cells))
        self.refresh()

    def place(self, row: int, column: int) -> None:
        """Puts the cursor on a cell and tells."""
        if self.map is None or not self.map.cells:
            return
        self.row = max(0, min(row, len(self.map.cells) - 1))
        self.column = max(0, min(column, len(self.map.segments) - 1))
        self._keep_visible()
        self.refresh()
        self.post_message(self.Moved())

    @property
    def cell_width(self) -> int:
        """Characters a cell takes: more where there is room."""
        count = len(self.map.segments) if self.map else 1
        return max(1, min(4, self._room // max(1, count)))

    @property
    def _width(self) -> int:
        return self.scrollable_content_region.width

    @property
    def _room(self) -> int:
        return max(1, self._width - LABEL - FIGURES - 1)

    @property
    def _fitting(self) -> int:
        return max(1, self._room // self.cell_width)

    def _keep_visible(self) -> None:
        self._left = min(self._left, self.column)
        self._left = max(self._left, self.column - self._fitting + 1, 0)
        self.scroll_to_region(Region(0, self.row, 1, 1), animate=False, force=True)

    def head(self) -> Text:
        """The line above: a letter for each segment's kind, and what the figures are."""
        if self.map is None:
            return Text("")
        kinds = [KINDS[segment.kind] for segment in self.map.segments[self._left :]]
        letters = "".join(kind.ljust(self.cell_width) for kind in kinds[: self._fitting])
        return Text(f"{'call':<{LABEL}}{letters:<{self._room}} {'seen':>5}{'span':>6}")

    def render_line(self, y: int) -> Strip:
        """See `ScrollView`."""
        row, base = self.scroll_offset.y + y, self.rich_style
        if self.map is None or row >= len(self.map.cells) or (self.playing and row > self.row):
            return Strip.blank(self._width, base)
        turn, cells = self.map.turns[row], self.map.cells[row]
        styles = palette(self.app.current_theme.dark)
        text = Text(f"{turn.number:>3}  ", style="bold" if row == self.row else "")
        for column in range(self._left, min(self._left + self._fitting, len(cells))):
            cell = cells[column]
            mark = cell.state.value * self.cell_width
            if cell.state in (State.REFRESHED, State.RESTORED, State.DROPPED, State.GONE):
                mark = cell.state.value.ljust(self.cell_width)
            if cell.is_partial(self.map.segments[column]):
                mark = "▄" * self.cell_width
            style = Style.parse(styles[cell.state]) if cell.state in styles else Style()
            if row == self.row and column == self.column:
                style += Style(reverse=True, bold=True, underline=self.has_focus)
            elif column == self.column or row == self.row:
                style += Style(bgcolor="grey23" if self.app.current_theme.dark else "grey85")
            text.append(mark, style)
        text.pad_right(max(0, LABEL + self._room - text.cell_len))
        text.append(f" {turn.attended:>5}{turn.span:>6}")
        strip = Strip(text.render(self.app.console)).adjust_cell_length(self._width, base)
        return strip.apply_style(base)

    def on_resize(self, event: events.Resize) -> None:
        """More or fewer segments fit."""
        self.virtual_size = Size(event.size.width, len(self.map.cells) if self.map else 0)
        self._keep_visible()

    def on_click(self, event: events.Click) -> None:
        """A click puts the cursor there."""
        column = self._left + (event.x - LABEL) // self.cell_width
        self.place(self.scroll_offset.y + event.y, column)

    def action_move(self, rows: int, columns: int) -> None:
        """By some cells."""
        self.place(self.row + rows, self.column + columns)

    def action_go(self, row: int) -> None:
        """To the first or the last call."""
        self.place(row if row >= 0 else len(self.map.cells) - 1 if self.map else 0, self.column)
