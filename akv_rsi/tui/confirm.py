"""Small questions: yes or no, and where to write."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Static

_BOX = """
{name} {{ align: center middle; }}
{name} Vertical {{ width: 70; max-width: 95%; height: auto; border: round $primary;
  background: $surface; padding: 1; }}
"""


class Confirm(ModalScreen[bool]):
    """Yes only by its own key."""

    DEFAULT_CSS = _BOX.format(name="Confirm")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "Yes"),
        Binding("n,escape", "dismiss(False)", "No"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """The question and its keys."""
        with Vertical():
            yield Static(self._question, markup=False)
        yield Footer()


class AskPath(ModalScreen[Path | None]):
    """Where to write a file. One that exists is not overwritten."""

    DEFAULT_CSS = _BOX.format(name="AskPath")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Cancel")]

    def __init__(self, what: str, path: str) -> None:
        super().__init__()
        self._what, self._path = what, path

    def compose(self) -> ComposeResult:
        """One line to edit."""
        with Vertical():
            yield Static(f"{self._what}; Enter writes it", markup=False)
            yield Input(self._path)
            yield Static("", id="problem", markup=False)
        yield Footer()

    @on(Input.Submitted)
    def write(self, event: Input.Submitted) -> None:
        """Takes the path unless something is there already."""
        path = Path(event.value).expanduser()
        if path.exists():
            self.query_one("#problem", Static).update(f"{path} exists: choose another name")
        else:
            self.dismiss(path)
