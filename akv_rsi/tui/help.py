"""The help of a screen: what it shows, and its keys."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Markdown

from akv_rsi.tui.pane import Pane

_EVERYWHERE = """
**1** to **7** or a click: another screen. **Arrows**, **PgUp**, **PgDn**, **Home**, **End**: move.
**Enter**: open. **t**: light or dark. **q**: quit.
"""


class Help(ModalScreen[None]):
    """Closes with any of its keys."""

    DEFAULT_CSS = """
    Help { align: center middle; }
    Help VerticalScroll { width: 80%; max-width: 100; height: auto; max-height: 90%;
      border: round $primary; background: $surface; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter", "dismiss", "Close")
    ]

    def __init__(self, pane: Pane) -> None:
        super().__init__()
        self._pane = pane

    def compose(self) -> ComposeResult:
        """One page."""
        keys = "\n".join(
            f"- **{_key(binding.key)}**: {binding.description}"
            for binding in self._pane.own_keys()
            if binding.description
        )
        name = type(self._pane).__name__.removesuffix("Pane")
        with VerticalScroll():
            yield Markdown(
                f"# {name}\n\n{self._pane.HELP}\n\n{keys}\n\n## Everywhere\n{_EVERYWHERE}"
            )
        yield Footer()


def _key(key: str) -> str:
    names = {"slash": "/", "question_mark": "?", "space": "Space", "left_square_bracket": "["}
    names["right_square_bracket"] = "]"
    return " or ".join(names.get(part, part) for part in key.split(","))
