"""Small questions: yes or no, and one line of text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Static

from akv_rsi.errors import AkvError, ConfigError

A = TypeVar("A")

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


class Ask(ModalScreen[A | None]):
    """One line of text; what ``take`` makes of it is the answer.

    Where ``take`` raises an `AkvError`, its message is shown and the question stays.
    """

    DEFAULT_CSS = _BOX.format(name="Ask")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Cancel")]

    def __init__(self, what: str, text: str, take: Callable[[str], A]) -> None:
        super().__init__()
        self._what, self._text, self._take = what, text, take

    def compose(self) -> ComposeResult:
        """One line to edit."""
        with Vertical():
            yield Static(self._what, markup=False)
            yield Input(self._text)
            yield Static("", id="problem", markup=False)
        yield Footer()

    @on(Input.Submitted)
    def answer(self, event: Input.Submitted) -> None:
        """Takes it, or says why not."""
        try:
            answer = self._take(event.value)
        except AkvError as error:
            self.query_one("#problem", Static).update(str(error))
        else:
            self.dismiss(answer)


def free_path(text: str) -> Path:
    """The path ``text`` names; `ConfigError` where something is already."""
    path = Path(text).expanduser()
    if path.exists():
        raise ConfigError(f"{path} exists: choose another name")
    return path
