"""A list of any length of which only the visible lines are made: tables, sources, logs, maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.cache import LRUCache
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

Line = Callable[[int, int], Text]


class Lines(ScrollView, can_focus=True):
    """``line(index, width)`` is asked for what is on the screen. The cursor is a whole line."""

    DEFAULT_CSS = """
    Lines { height: 1fr; background: $surface; scrollbar-size-vertical: 1; overflow-x: hidden; }
    Lines:focus { background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("home,g", "jump(0)", "first", show=False),
        Binding("end,G", "jump(-1)", "last", show=False),
        Binding("enter", "choose", "open", show=False),
    ]

    class Moved(Message):
        """The cursor stands on another line."""

        def __init__(self, lines: Lines, index: int) -> None:
            super().__init__()
            self.lines, self.index = lines, index

        @property
        def control(self) -> Lines:
            """The list."""
            return self.lines

    class Chosen(Moved):
        """Enter, or a click on the line under the cursor."""

    def __init__(self, *, cursor: bool = True, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.index = 0
        self.has_cursor = cursor
        self._count = 0
        # What was drawn once, until it is renewed: scrolling draws the same lines again and again.
        self._made: LRUCache[tuple[int, int], Strip] = LRUCache(1024)
        self._line: Line = lambda index, width: Text()

    @property
    def count(self) -> int:
        """How many lines there are."""
        return self._count

    def fill(self, count: int, line: Line, index: int | None = None) -> None:
        """Shows other lines; the cursor stays where it is, or goes to ``index``."""
        self._count, self._line = count, line
        self.virtual_size = Size(self.size.width, count)
        self.index = max(0, min(self.index if index is None else index, count - 1))
        if index is not None:
            self._show()
        self.renew()

    def renew(self) -> None:
        """Asks for the lines again: what they say has changed."""
        self._made.clear()
        self.refresh()

    def say(self, text: str) -> None:
        """One message in place of lines."""
        rows = text.splitlines() or [""]
        self.fill(len(rows), lambda i, _: Text(rows[i], style="italic"), 0)

    def move_to(self, index: int) -> None:
        """Puts the cursor on a line and tells."""
        before, self.index = self.index, max(0, min(index, self._count - 1))
        self._show()
        top, width = self.scroll_offset.y, self.size.width
        self.refresh(*(Region(0, line - top, width, 1) for line in (before, self.index)))
        self.post_message(self.Moved(self, self.index))

    def _show(self) -> None:
        if self.has_cursor:
            self.scroll_to_region(Region(0, self.index, 1, 1), animate=False, force=True)

    def on_resize(self, event: events.Resize) -> None:
        """Lines are cut to the width."""
        self.virtual_size = Size(event.size.width, self._count)

    def render_line(self, y: int) -> Strip:
        """See `ScrollView`."""
        width, index = self.scrollable_content_region.width, self.scroll_offset.y + y
        base = self.rich_style
        if index >= self._count:
            return Strip.blank(width, base)
        strip = self._strip(index, width).adjust_cell_length(width, base)
        if self.has_cursor and index == self.index:
            return strip.apply_style(
                base + Style(reverse=self.has_focus, underline=not self.has_focus)
            )
        return strip.apply_style(base)

    def _strip(self, index: int, width: int) -> Strip:
        if (index, width) not in self._made:
            # Appended, a text keeps the style it has as a whole; by itself it would lose it.
            text = Text().append_text(self._line(index, width))
            self._made[index, width] = Strip(text.render(self.app.console))
        return self._made[index, width]

    def action_move(self, by: int) -> None:
        """One line."""
        if self.has_cursor:
            self.move_to(self.index + by)
        else:
            self.scroll_relative(y=by, animate=False)

    def action_page(self, by: int) -> None:
        """One screen."""
        self.action_move(by * max(1, self.size.height - 1))

    def action_jump(self, index: int) -> None:
        """The first or the last line."""
        self.move_to(index if index >= 0 else self._count - 1)
        if not self.has_cursor:
            self.scroll_to(y=0 if index >= 0 else self._count, animate=False)

    def action_choose(self) -> None:
        """Opens the line."""
        if self._count:
            self.post_message(self.Chosen(self, self.index))

    def on_click(self, event: events.Click) -> None:
        """The first click selects, the second opens."""
        index = self.scroll_offset.y + event.y
        if not self.has_cursor or index >= self._count:
            return
        if index == self.index:
            self.action_choose()
        else:
            self.move_to(index)
