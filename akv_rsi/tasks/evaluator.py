"""The evaluator: policies on tasks, in fixed cohorts, on one process or several.

Tasks are dealt into shards by their number alone; each shard is a cohort with a cold cache. So the
result is the same on any number of worker processes.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from akv_rsi.errors import ConfigError
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.tasks.bench import Agent, Bench
from akv_rsi.tasks.cohort import CohortResult, Totals, run_cohort
from akv_rsi.tasks.cost import PriceModel
from akv_rsi.tasks.environment import Suite
from akv_rsi.tasks.episode import Episode, TaskRef
from akv_rsi.tasks.replay import Replay, replay_cost
from akv_rsi.tasks.suites import load_suite
from akv_rsi.tasks.workers import Job, Report, WorkerPool
from akv_rsi.types import Trajectory

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EvaluatorConfig:
    """``workers`` processes (0: this one); a cohort holds up to ``shard_tasks`` tasks.

    ``max_turns`` is a safety cap on an episode's calls; ``budget`` is what policies are told.
    Only ``workers`` may change without changing results.
    """

    workers: int = 0
    shard_tasks: int = 16
    max_turns: int = 200
    budget: float = 1.0

    def __post_init__(self) -> None:
        if self.workers < 0 or self.shard_tasks < 1 or self.max_turns < 1:
            raise ConfigError(f"{self}: workers >= 0, shard_tasks >= 1, max_turns >= 1")


@dataclass(frozen=True, slots=True)
class _Setup:
    """Makes a `Bench` in whatever process runs it. All of it pickles."""

    make_agent: Callable[[], Agent]
    suites: Callable[[str], Suite]
    prices: PriceModel
    config: EvaluatorConfig

    def __call__(self) -> Bench:
        config = self.config
        return Bench(self.make_agent(), self.suites, self.prices, config.budget, config.max_turns)


@dataclass(frozen=True, slots=True)
class _CohortJob:
    specs: tuple[PolicySpec, ...]
    tasks: tuple[TaskRef, ...]
    keep: bool

    def __call__(self, bench: Bench, report: Report) -> CohortResult:
        return run_cohort(bench, self.specs, self.tasks, report, self.keep)


@dataclass(frozen=True, slots=True)
class _ScriptJob:
    tasks: tuple[TaskRef, ...]

    def __call__(self, bench: Bench, report: Report) -> list[Trajectory | None]:
        return [bench.script(task) for task in self.tasks]


@dataclass(frozen=True, slots=True)
class _ReplayJob:
    """The trajectories are pickled already: the same few are replayed under many policies."""

    spec: PolicySpec
    packed: tuple[bytes, ...]

    def __call__(self, bench: Bench, report: Report) -> list[Replay]:
        return replay_cost(
            self.spec,
            [_unpacked(one) for one in self.packed],
            bench.prices,
            bench.agent.chat.reliable_span,
            bench.budget,
        )


class Evaluator:
    """Runs policies on tasks with one agent under one price model.

    ``make_agent`` builds the engine and its format in each process that runs cohorts, so it must
    pickle when there are workers, and so must ``suites``, which finds a suite by name. ``totals``
    adds up what the engine did. Use as a context manager, or call `close`: workers end then.
    """

    def __init__(
        self,
        make_agent: Callable[[], Agent],
        prices: PriceModel,
        config: EvaluatorConfig | None = None,
        suites: Callable[[str], Suite] = load_suite,
        on_episode: Callable[[Episode], None] = lambda _: None,
    ) -> None:
        self.prices = prices
        self.config = config or EvaluatorConfig()
        self.on_episode = on_episode
        self.totals = Totals()
        setup = _Setup(make_agent, suites, prices, self.config)
        self._pool = WorkerPool(setup, self.config.workers)
        self._packed: dict[int, tuple[Trajectory, bytes]] = {}  # by `id`, which they keep in use

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the worker processes."""
        self._pool.close()

    def run(
        self, specs: Sequence[PolicySpec], tasks: Sequence[TaskRef], keep: bool = False
    ) -> list[list[Episode]]:
        """Every policy on every task: one list per policy, in task order.

        ``on_episode`` is called as each ends; ``keep`` adds trajectories and measurements. What a
        policy or a task does wrong is an episode's outcome; an `EngineError` stops the run.
        """
        if not specs or not tasks:
            return [[] for _ in specs]
        shards = deal(tasks, self.config.shard_tasks)
        jobs = [_CohortJob(tuple(specs), tuple(shard), keep) for shard in shards]
        results: list[CohortResult] = self._pool.map(jobs, self.on_episode)
        for result in results:
            self.totals += result.totals
        return [undeal([r.episodes[i] for r in results]) for i in range(len(specs))]

    def scripts(self, tasks: Sequence[TaskRef]) -> list[Trajectory | None]:
        """Each task as its expert solves it under the oracle; None where there is no expert."""
        shards = deal(tasks, self.config.shard_tasks)
        return undeal(self._pool.map([_ScriptJob(tuple(shard)) for shard in shards]))

    def replay_cost(self, spec: PolicySpec, trajectories: Sequence[Trajectory]) -> list[Replay]:
        """``spec`` on each recorded trajectory, open-loop: see `replay.replay_cost`."""
        shards = deal([self._pack(one) for one in trajectories], self.config.shard_tasks)
        return undeal(self._pool.map([_ReplayJob(spec, tuple(shard)) for shard in shards]))

    def work(self, jobs: Sequence[Job[Bench]]) -> list[Any]:
        """What other jobs return, each given a bench of its own process; they must pickle."""
        return self._pool.map(jobs)

    def _pack(self, trajectory: Trajectory) -> bytes:
        """Pickling one takes longer than replaying it."""
        if id(trajectory) not in self._packed:
            self._packed[id(trajectory)] = trajectory, pickle.dumps(trajectory)
        return self._packed[id(trajectory)][1]


@lru_cache(maxsize=256)
def _unpacked(packed: bytes) -> Trajectory:
    trajectory: Trajectory = pickle.loads(packed)  # our own, from `_pack`
    return trajectory


def deal(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """``items`` in turn over as few hands as hold ``size`` each, but over two if possible.

    >>> deal("abcde", 2)
    ['ad', 'be', 'c']
    """
    hands = min(len(items), max(2, -(-len(items) // size)))
    return [items[i::hands] for i in range(hands)]


def undeal(hands: Sequence[Sequence[T]]) -> list[T]:
    """The items that `deal` dealt, in their order."""
    total = sum(len(hand) for hand in hands)
    return [hands[i % len(hands)][i // len(hands)] for i in range(total)]
