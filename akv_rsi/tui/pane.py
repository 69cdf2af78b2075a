"""What the inspector's screens have in common: what is looked at, and how they tell the app."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

from textual.binding import Binding
from textual.containers import Container
from textual.message import Message

from akv_rsi.insight.compare import instructive
from akv_rsi.insight.run import Run
from akv_rsi.insight.seen import Seen
from akv_rsi.tasks.episode import TaskRef

if TYPE_CHECKING:
    from akv_rsi.tui.app import Inspector


@dataclass
class Shown:
    """What is looked at: a policy of a run, another to compare it with, and a task.

    Until someone has ``chosen``, it is the best policy so far.
    """

    run: Run
    policy: Seen
    partner: Seen
    task: TaskRef | None = None
    chosen: bool = False

    @classmethod
    def first(cls, run: Run) -> Shown:
        """The best policy against keeping everything."""
        shown = cls(run, run.best or run.full, run.full)
        shown.settle()
        return shown

    def follow(self) -> None:
        """Looks at what is the best now, unless someone has chosen."""
        if not self.chosen:
            self.policy = self.run.best or self.run.full
            self.settle()

    def tasks(self) -> list[TaskRef]:
        """The tasks on which the policy's conversations are kept; those of the test first."""
        return [task for tasks in self.run.recorded(self.policy).values() for task in tasks]

    def beside(self, by: int) -> TaskRef | None:
        """The task so many places further in the list."""
        tasks = self.tasks()
        at = tasks.index(self.task) if self.task in tasks else -by
        return tasks[(at + by) % len(tasks)] if tasks else None

    def settle(self) -> None:
        """Stays on the task if the policy's conversation is kept there; else a telling one."""
        tasks = self.tasks()
        if self.task not in tasks:
            told = [told.task for told in instructive(self.run, self.policy)]
            self.task = next(iter([*told, *tasks]), None)


class Pane(Container):
    """One screen. It is asked to `show` when it comes to the front or what is looked at changes."""

    DEFAULT_CSS = "Pane { height: 1fr; }"
    HELP: ClassVar[str] = ""

    class Look(Message):
        """Something else is to be looked at, maybe on another screen."""

        def __init__(
            self,
            policy: Seen | None = None,
            partner: Seen | None = None,
            task: TaskRef | None = None,
            tab: str = "",
        ) -> None:
            super().__init__()
            self.policy, self.partner, self.task, self.tab = policy, partner, task, tab

    @property
    def shown(self) -> Shown:
        """What is looked at."""
        return cast("Inspector", self.app).shown

    @property
    def dark(self) -> bool:
        """Whether the theme is a dark one."""
        return self.app.current_theme.dark

    @classmethod
    def own_keys(cls) -> list[Binding]:
        """Its own keys, and those it shares with other screens."""
        kinds = [kind for kind in cls.__mro__ if issubclass(kind, Pane)]
        own = [kind.__dict__.get("BINDINGS", ()) for kind in reversed(kinds)]
        return [binding for part in own for binding in part if isinstance(binding, Binding)]

    @property
    def parting(self) -> str:
        """What someone who quits now should know, as a sentence; empty if there is nothing."""
        return ""

    def tick(self) -> None:
        """A second has passed with nothing new, in a run that is followed."""

    def show(self) -> None:
        """Brings the screen up to date."""
        raise NotImplementedError

    def looked(self) -> None:
        """Something else is looked at; the screen stays in front."""
        self.show()
