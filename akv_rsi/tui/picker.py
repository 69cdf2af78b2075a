"""A list to choose a recorded task from."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Footer, Static

from akv_rsi.insight.compare import instructive
from akv_rsi.tasks.episode import TaskRef
from akv_rsi.tui.lines import Lines
from akv_rsi.tui.look import name_of, short
from akv_rsi.tui.pane import Shown


class TaskPicker(ModalScreen[TaskRef | None]):
    """The tasks on which the policy's conversations are kept, the instructive ones first."""

    DEFAULT_CSS = """
    TaskPicker { align: center middle; }
    TaskPicker Vertical { width: 90%; max-width: 90; height: 80%; border: round $primary;
      background: $surface; padding: 0 1; }
    TaskPicker Static { height: 1; text-style: bold; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss(None)", "Close")]

    def __init__(self, shown: Shown) -> None:
        super().__init__()
        self._shown = shown
        told = {t.task: t for t in instructive(shown.run, shown.policy)}
        self._told = {task: f"{t.kind}: {t.words}" for task, t in told.items()}
        self._tasks = [*told, *(task for task in shown.tasks() if task not in told)]

    def compose(self) -> ComposeResult:
        """A line a task."""
        with Vertical():
            partner = name_of(self._shown.run, self._shown.partner)
            yield Static(f"{'task':<20} {'solved':>7} {'cost':>5}  against {partner}")
            yield Lines()
        yield Footer()

    def on_mount(self) -> None:
        """The present task is under the cursor."""
        lines = self.query_one(Lines)
        at = self._tasks.index(self._shown.task) if self._shown.task in self._tasks else 0
        lines.fill(len(self._tasks), self._line, at)
        lines.focus()

    def _line(self, index: int, width: int) -> Text:
        task, shown = self._tasks[index], self._shown
        ours = shown.policy.episodes[task.split][task]
        theirs = shown.partner.episodes.get(task.split, {}).get(task)
        name = f"{task.suite}/{task.seed} {task.split}"
        solved = "yes" if ours.success else "NO"
        cost = "" if theirs is None else short(ours.cost / theirs.cost)
        if theirs is not None:
            solved += "/yes" if theirs.success else "/NO"
        return Text(f"{name:<20} {solved:>7} {cost:>5}  {self._told.get(task, '')}")

    @on(Lines.Chosen)
    def choose(self, event: Lines.Chosen) -> None:
        """This one."""
        self.dismiss(self._tasks[event.index] if self._tasks else None)
