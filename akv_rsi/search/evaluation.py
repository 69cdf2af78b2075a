"""Cohorts as durable steps: what a search needs of an evaluator, and how the results are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from akv_rsi.policies.spec import PolicySpec
from akv_rsi.search.codec import encode, pack, unpack
from akv_rsi.search.journal import Journal, Outcome
from akv_rsi.tasks.cost import PriceModel
from akv_rsi.tasks.episode import Episode, Split, TaskRef
from akv_rsi.tasks.replay import Replay
from akv_rsi.types import Trajectory


class Evaluates(Protocol):
    """What a search needs of an evaluator; `akv_rsi.tasks.evaluator.Evaluator` has it."""

    prices: PriceModel
    on_episode: Callable[[Episode], None]

    @property
    def totals(self) -> Any:
        """What the engine did so far: a dataclass whose numeric fields only grow."""
        ...

    def run(
        self, specs: Sequence[PolicySpec], tasks: Sequence[TaskRef], keep: bool = False
    ) -> list[list[Episode]]:
        """Every policy on every task as one cohort; ``keep`` adds the trajectories."""
        ...

    def scripts(self, tasks: Sequence[TaskRef]) -> list[Trajectory | None]:
        """Each task as its expert solves it, where it has one."""
        ...

    def work(self, jobs: Sequence[Any]) -> list[Any]:
        """What other jobs return, each given a bench."""
        ...

    def replay_cost(self, spec: PolicySpec, trajectories: Sequence[Trajectory]) -> list[Replay]:
        """``spec`` on each recorded trajectory, open-loop."""
        ...


Rows = dict[str, tuple[Episode, ...]]


class Sealed(NamedTuple):
    """What the sealed test showed of each policy, by id.

    ``fixed`` is its cost on the experts' action sequences, where one that loops cannot flatter
    itself by ending early or late; 0 where the suites have no experts.
    """

    rows: Rows
    fixed: dict[str, float]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The episodes of each policy by its id, without trajectories, which stay packed."""

    rows: Rows
    packed: bytes

    def full(self, policy: str) -> tuple[Episode, ...]:
        """A policy's episodes with their trajectories."""
        recorded = self.trajectories()[policy]
        return tuple(
            replace(e, trajectory=t) for e, t in zip(self.rows[policy], recorded, strict=True)
        )

    def trajectories(self) -> dict[str, tuple[Trajectory, ...]]:
        """The trajectories of each policy, where they were kept."""
        return dict(zip(self.rows, unpack(self.packed), strict=True))


def evaluate(
    journal: Journal,
    evaluator: Evaluates,
    specs: Sequence[PolicySpec],
    tasks: Sequence[TaskRef],
    keep: bool = False,
) -> Evaluation:
    """The policies on the tasks as one cohort, recalled or run; ``keep`` stores trajectories."""
    distinct = list({spec.id: spec for spec in specs}.values())
    split: Split = tasks[0].split
    names = [spec.id for spec in distinct]
    content = f"{split}/{names}/{tasks}"
    key = f"{split}/{len(tasks)}/{hashlib.sha256(content.encode()).hexdigest()[:12]}"

    def run() -> Outcome:
        before = _counts(evaluator.totals)
        rows = evaluator.run(distinct, tasks, keep)
        after = _counts(evaluator.totals)
        trajectories = [[episode.trajectory for episode in row] for row in rows]
        body = {
            "split": split,
            "policies": names,
            "episodes": [[_lean(episode) for episode in row] for row in rows],
            "totals": {name: after[name] - before[name] for name in after},
        }
        return Outcome(body, pack(trajectories) if keep else b"")

    event = journal.perform("evaluation", key, run)
    rows = dict(zip(event.body["policies"], event.body["episodes"], strict=True))
    return Evaluation(rows, event.attachment)


def _lean(episode: Episode) -> Episode:
    return replace(episode, trajectory=None, measured=())


def _counts(totals: object) -> dict[str, int]:
    """The counters of the engine; times (fractions of seconds) differ between equal runs."""
    counts: dict[str, int] = encode(totals)
    return {name: value for name, value in counts.items() if isinstance(value, int)}
