"""What an evaluation needs in the process that runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from akv_rsi.engine.request import Completion, Request
from akv_rsi.errors import AkvError
from akv_rsi.tasks.agent import ChatFormat
from akv_rsi.tasks.cost import PriceModel
from akv_rsi.tasks.decide import ask
from akv_rsi.tasks.environment import Environment, Suite
from akv_rsi.tasks.episode import TaskRef
from akv_rsi.tasks.script import demonstrate
from akv_rsi.types import Trajectory


class Generates(Protocol):
    """What a cohort needs of an engine."""

    def submit(self, request: Request) -> int:
        """Queues a request and returns its number; `AkvError` when it cannot be run."""
        ...

    def step(self) -> Sequence[tuple[int, Completion | AkvError]]:
        """One forward pass; what it finished, by number, failures included."""
        ...

    def reset(self) -> None:
        """Forgets every cached token."""
        ...


class Agent(NamedTuple):
    """A model that acts: the engine that runs it and the format it speaks."""

    engine: Generates
    chat: ChatFormat


@dataclass(slots=True)
class Bench:
    """Where cohorts run: an agent, its suites, the prices, and the scripts of tasks met so far."""

    agent: Agent
    suites: Callable[[str], Suite]
    prices: PriceModel
    budget: float = 1.0
    max_turns: int = 200
    _scripts: dict[TaskRef, Trajectory | None] = field(default_factory=dict)

    def environment(self, task: TaskRef) -> Environment:
        """A fresh environment of ``task``."""
        return self.suites(task.suite).environment(task.seed)

    def script(self, task: TaskRef) -> Trajectory | None:
        """The task as its expert solves it; None where its environment has no expert."""
        if task not in self._scripts:
            self._scripts[task] = demonstrate(
                f"{task.suite}/{task.seed}",
                ask(self.environment, task),
                self.agent.chat,
                self.prices,
                self.max_turns,
            )
        return self._scripts[task]
