"""A Python source that can be edited, in the colours it has elsewhere."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea

from akv_rsi.tui.look import highlighted


class Editor(TextArea):
    """Tab indents; Escape leaves it, so that a screen's keys are keys again."""

    DEFAULT_CSS = """
    Editor { height: 1fr; border: none; padding: 0; background: $surface; scrollbar-size: 0 1; }
    Editor:focus { border: none; background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Leave the source", priority=True)
    ]

    class Left(Message):
        """Its user wants to be elsewhere."""

    def __init__(self) -> None:
        super().__init__(tab_behavior="indent", show_line_numbers=True, soft_wrap=False)
        self._coloured: tuple[str, bool, list[Text]] = ("", True, [])

    def put(self, text: str) -> None:
        """Puts ``text`` in place of all there is; it can be undone, and the cursor stays."""
        cursor = self.cursor_location
        self.replace(text, self.document.start, self.document.end, maintain_selection_offset=False)
        self.move_cursor(cursor)

    def go_to(self, line: int) -> None:
        """To the beginning of a line, counted from 1."""
        self.focus()
        self.move_cursor((max(0, min(line, self.document.line_count) - 1), 0), center=True)

    def get_line(self, line_index: int) -> Text:
        """See `TextArea`."""
        plain, rows = super().get_line(line_index), self._rows()
        # A lexer may change what it reads, such as tabs; what is edited must stand there.
        if line_index >= len(rows) or rows[line_index].plain != plain.plain:
            return plain
        for span in rows[line_index].spans:
            plain.stylize(span.style, span.start, span.end)
        return plain

    def _rows(self) -> list[Text]:
        text, dark = self.text, self.app.current_theme.dark
        if self._coloured[:2] != (text, dark):
            self._coloured = (text, dark, highlighted(text, dark))
        return self._coloured[2]

    def action_leave(self) -> None:
        """Tells."""
        self.post_message(self.Left())
