"""What screens about one recorded task have in common: going from one to another."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from akv_rsi.tasks.episode import TaskRef
from akv_rsi.tui.pane import Pane
from akv_rsi.tui.picker import TaskPicker


class TaskPane(Pane):
    """A screen that shows the task which is looked at."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "task", "Task"),
        Binding("n", "next(1)", "Next task", show=False),
        Binding("b", "next(-1)", "Back", show=False),
    ]

    def action_task(self) -> None:
        """Chooses a task."""
        self.app.push_screen(TaskPicker(self.shown), self._chosen)

    def _chosen(self, task: TaskRef | None) -> None:
        if task is not None:
            self.post_message(self.Look(task=task))

    def action_next(self, by: int) -> None:
        """The next recorded task."""
        self.post_message(self.Look(task=self.shown.beside(by)))
