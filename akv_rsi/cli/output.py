"""How commands show things: tables for people, JSON for programs, progress on stderr."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from akv_rsi.tasks.stats import Interval
from akv_rsi.tasks.summary import Row


def print_json(value: Any) -> None:
    """``value`` as JSON on stdout."""
    print(json.dumps(value, indent=2, allow_nan=False))


def listening(what: str, about: dict[str, Any], as_json: bool) -> Callable[[str], None]:
    """Tells where a server listens: as JSON on stdout, or as a line on stderr."""

    def tell(url: str) -> None:
        if as_json:
            print_json({"url": url, **about})
            sys.stdout.flush()
        else:
            print(f"{what} on {url}", file=sys.stderr, flush=True)

    return tell


def rows_table(
    rows: Iterable[tuple[str, Row | None]], title: str = "", measure: str = "accuracy"
) -> Table:
    """A table of policies; a row that is None could not be had."""
    table = Table(title=title, title_justify="left")
    table.add_column("policy", overflow="fold", min_width=15)
    for name in (measure, "in span", "beyond", "cost ratio", "reads", "n"):
        table.add_column(name, justify="right", min_width=3)
    for name, row in rows:
        if row is None:
            table.add_row(name, *["-"] * 6)
            continue
        table.add_row(
            name,
            interval(row.accuracy),
            _short(row.in_span),
            _short(row.beyond_span),
            interval(row.cost_ratio),
            f"{row.kv_read_share:.0%}",
            str(row.n),
        )
    return table


def interval(value: Interval | tuple[float, float, float], sign: str = "") -> str:
    """An estimate with its limits.

    >>> interval((0.9, 0.85, 0.94))
    '.900 [.85 .94]'
    >>> interval((-10.5, -20.25, 0.0), "+")
    '-10.500 [-20.25 +.00]'
    """
    estimate, low, high = value
    text = f"{estimate:{sign}.3f} [{low:{sign}.2f} {high:{sign}.2f}]"
    return re.sub(r"(?<!\d)0\.", ".", text)


def _short(value: Interval | None) -> str:
    return "-" if value is None else f"{value.estimate:.3f}"


class Bars:
    """A `Watcher` with one progress bar per phase, on stderr; lines appear above them.

    Where stderr is no terminal bars cannot be drawn: ``plain`` says how far it is in lines instead,
    for a program that reads along.
    """

    def __init__(self, plain: bool = False) -> None:
        self.console = Console(stderr=True)
        self._plain = plain and not self.console.is_terminal
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("episodes"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Bars:
        if not self._plain:
            self._progress.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._progress.stop()

    def begin(self, phase: str, episodes: int) -> None:
        """A new bar; the one before is full."""
        self._finish()
        self._task = self._progress.add_task(phase, total=episodes)

    def advance(self, episodes: int) -> None:
        """The current bar grows."""
        if self._task is None:
            return
        self._progress.advance(self._task, episodes)
        if self._plain:
            (bar,) = (task for task in self._progress.tasks if task.id == self._task)
            self.say(f"{bar.description} {bar.completed:.0f}/{bar.total:.0f}")

    def say(self, line: str) -> None:
        """A line above the bars."""
        self.console.print(line, highlight=False)

    def _finish(self) -> None:
        for task in self._progress.tasks:
            self._progress.update(
                task.id, total=max(task.completed, 1), completed=max(task.completed, 1)
            )
