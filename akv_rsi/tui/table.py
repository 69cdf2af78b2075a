"""A sortable table over `Lines`: it shows the columns that fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Static

from akv_rsi.tui.lines import Lines

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """``text`` is made for visible rows only; ``key`` sorts; low ``rank`` columns stay longest."""

    name: str
    width: int
    text: Callable[[R], str]
    key: Callable[[R], Any]
    rank: int = 0
    left: bool = False
    style: Callable[[R], str] = lambda row: ""

    def cell(self, row: R) -> Text:
        """The cell of a row, as wide as the column."""
        return self.fit(self.text(row), self.style(row))

    def fit(self, text: str, style: str = "") -> Text:
        """``text`` cut or filled to the column's width."""
        text = text if len(text) <= self.width else text[: self.width - 1] + "…"
        return Text(text.ljust(self.width) if self.left else text.rjust(self.width), style=style)


class Table(Vertical, Generic[R]):
    """Rows under a header line; clicking a name sorts by it."""

    DEFAULT_CSS = """
    Table > Static { height: 1; background: $panel; text-style: bold; }
    """

    class Sorted(Message):
        """The order has changed."""

    def __init__(self, columns: Sequence[Column[R]], sort: str, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._columns = tuple(columns)
        self._rows: list[R] = []
        self.sort, self.descending = sort, True

    def compose(self) -> ComposeResult:
        """Header and lines."""
        yield Static("", markup=False)
        yield Lines()

    @property
    def lines(self) -> Lines:
        """The rows on the screen."""
        return self.query_one(Lines)

    @property
    def rows(self) -> Sequence[R]:
        """The rows in their present order."""
        return self._rows

    def fill(self, rows: Sequence[R], current: R | None = None) -> None:
        """Shows ``rows``, sorted, with the cursor on ``current`` if it is there."""
        column = next(c for c in self._columns if c.name == self.sort)
        self._rows = sorted(rows, key=column.key, reverse=self.descending)
        index = self._rows.index(current) if current in self._rows else 0
        self.lines.fill(len(self._rows), self._line, index)
        self._head(self.size.width)

    def sort_by(self, name: str) -> None:
        """By another column; by the same one the other way round."""
        self.descending = not self.descending if name == self.sort else True
        self.sort = name
        current = self._rows[self.lines.index] if self._rows else None
        self.fill(self._rows, current)
        self.post_message(self.Sorted())

    def next_sort(self) -> None:
        """By the next visible column."""
        names = [column.name for column in self._fitting(self.size.width)]
        at = names.index(self.sort) if self.sort in names else -1
        self.sort_by(names[(at + 1) % len(names)])

    def on_resize(self, event: events.Resize) -> None:
        """Other columns may fit."""
        self._head(event.size.width)

    def on_click(self, event: events.Click) -> None:
        """A click on a column's name sorts by it."""
        if not isinstance(event.widget, Static):
            return
        at = 0
        for column in self._fitting(self.size.width):
            at += column.width + 1
            if event.x < at:
                self.sort_by(column.name)
                return

    def _fitting(self, width: int) -> list[Column[R]]:
        room, chosen = width - 1, set[str]()
        for column in sorted(self._columns, key=lambda c: c.rank):
            if column.width + 1 > room:
                break
            room -= column.width + 1
            chosen.add(column.name)
        return [column for column in self._columns if column.name in chosen]

    def _head(self, width: int) -> None:
        arrow = "▾" if self.descending else "▴"
        cells = [
            column.fit(column.name + (arrow if column.name == self.sort else ""))
            for column in self._fitting(width)
        ]
        self.query_one(Static).update(Text(" ").join(cells))

    def _line(self, index: int, width: int) -> Text:
        row = self._rows[index]
        return Text(" ").join([column.cell(row) for column in self._fitting(width)])
