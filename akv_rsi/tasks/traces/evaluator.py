"""The evaluator of a search on recorded conversations: policies replayed, billed and judged.

It offers what `akv_rsi.tasks.evaluator.Evaluator` does, so that a search cannot tell them apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from akv_rsi.errors import AkvError, OpError, PolicyError
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.tasks.cohort import Totals
from akv_rsi.tasks.cost import PriceModel
from akv_rsi.tasks.episode import Episode, TaskRef
from akv_rsi.tasks.evaluator import deal, undeal
from akv_rsi.tasks.replay import Replay
from akv_rsi.tasks.traces.corpus import Corpus, Item
from akv_rsi.tasks.traces.objective import Objective
from akv_rsi.tasks.traces.policy_costs import bill_context
from akv_rsi.tasks.traces.provider import add_up
from akv_rsi.tasks.traces.replays import Replayer, Setting
from akv_rsi.tasks.workers import Job, Report, WorkerPool
from akv_rsi.types import Trajectory, Usage

SHARD = 8  # conversations that a worker takes at once


@dataclass(frozen=True, slots=True)
class TraceBench:
    """What a worker needs: conversations, and how policies are replayed and judged on them."""

    corpus: Corpus
    objective: Objective
    setting: Setting

    def __call__(self) -> TraceBench:
        """Itself: it pickles, and there is nothing to build."""
        return self

    def replay(self, spec: PolicySpec, items: Sequence[Item]) -> list[Replay]:
        """``spec`` on each conversation; raises the `AkvError` of a policy that is at fault."""
        with Replayer([spec], self.setting) as replayer:
            return [self._replay(item, replayer) for item in items]

    def _replay(self, item: Item, replayer: Replayer) -> Replay:
        kept = cost = again = 0.0
        lost = calls = 0
        usage, digest = Usage(), hashlib.sha256()
        for context in item.contexts:
            (replayed,) = replayer.run(context)
            if isinstance(replayed, AkvError):
                raise replayed
            billed = bill_context(context, replayed.calls, item.tariff, replayed.seen)
            judged = self.objective.judge(context, replayed, billed.usages)
            kept, lost = kept + judged.kept, lost + judged.lost
            calls += len(context.times)
            usage += add_up(billed.usages) + judged.refetched
            again += item.tariff.prices.cost(judged.refetched)
            cost += billed.cost(item.tariff)
            digest.update(repr([call.ops for call in replayed.calls]).encode())
            digest.update(repr(replayed.edits).encode())
        name = digest.hexdigest()[:16]
        return Replay(cost + again, usage, name, lost, 0, kept / calls, again)


@dataclass(frozen=True, slots=True)
class _EpisodeJob:
    specs: tuple[PolicySpec, ...]
    tasks: tuple[TaskRef, ...]

    def __call__(self, bench: TraceBench, report: Report) -> list[list[Episode]]:
        rows = [self._row(bench, spec) for spec in self.specs]
        for row in rows:
            for episode in row:
                report(episode)
        return rows

    def _row(self, bench: TraceBench, spec: PolicySpec) -> list[Episode]:
        return [self._episode(bench, spec, task) for task in self.tasks]

    def _episode(self, bench: TraceBench, spec: PolicySpec, task: TaskRef) -> Episode:
        item = bench.corpus.item(task)
        in_span = item.longest <= bench.setting.span
        try:
            (replay,) = bench.replay(spec, [item])
        except (PolicyError, OpError) as error:
            detail = f"{type(error).__name__}: {error}"
            return Episode(task, spec.id, 0.0, "policy_error", 0.0, Usage(), in_span, detail)
        return Episode(task, spec.id, replay.safety, "done", replay.cost, replay.usage, in_span)


@dataclass(frozen=True, slots=True)
class _ReplayJob:
    spec: PolicySpec
    tasks: tuple[TaskRef, ...]

    def __call__(self, bench: TraceBench, report: Report) -> list[Replay]:
        return bench.replay(self.spec, [bench.corpus.item(task) for task in self.tasks])


class TraceEvaluator:
    """Replays policies on the conversations of a corpus; ``workers`` processes, 0: this one.

    Results depend on the corpus, the objective and the setting alone. ``totals`` adds up the tokens
    of all replayed calls. Use as a context manager, or call `close`: workers end then.
    """

    def __init__(
        self, corpus: Corpus, objective: Objective, setting: Setting, workers: int = 0
    ) -> None:
        self.prices: PriceModel = setting.prices
        self.on_episode: Callable[[Episode], None] = lambda _: None
        self.totals = Totals()
        self._corpus = corpus
        self._known: dict[str, TaskRef] = {}
        self._pool = WorkerPool(TraceBench(corpus, objective, setting), workers)

    def __enter__(self) -> TraceEvaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the worker processes."""
        self._pool.close()

    def run(
        self, specs: Sequence[PolicySpec], tasks: Sequence[TaskRef], keep: bool = False
    ) -> list[list[Episode]]:
        """Every policy on every conversation: one list per policy, in task order.

        What a policy does wrong is its episode's outcome. ``keep`` adds nothing: the conversations
        are recorded already.
        """
        shards = deal(tasks, SHARD)
        jobs = [_EpisodeJob(tuple(specs), tuple(shard)) for shard in shards]
        results: list[list[list[Episode]]] = self._pool.map(jobs, self.on_episode)
        rows = [undeal([result[i] for result in results]) for i in range(len(specs))]
        for episode in (episode for row in rows for episode in row):
            usage = episode.usage
            self.totals += Totals(
                episodes=1,
                calls=usage.calls,
                cached=usage.cached,
                computed=usage.uncached,
                refreshed=usage.refreshed,
                output=usage.output,
            )
        return rows

    def scripts(self, tasks: Sequence[TaskRef]) -> list[Trajectory | None]:
        """Each conversation as it was recorded: of several contexts the longest."""
        trajectories: list[Trajectory | None] = []
        for task in tasks:
            contexts = self._corpus.item(task).contexts
            longest = max(contexts, key=lambda one: len(one.times)).trajectory
            self._known[longest.id] = task
            trajectories.append(longest)
        return trajectories

    def work(self, jobs: Sequence[Job[TraceBench]]) -> list[Any]:
        """What other jobs return, each given a `TraceBench`."""
        return self._pool.map(jobs)

    def replay_cost(self, spec: PolicySpec, trajectories: Sequence[Trajectory]) -> list[Replay]:
        """``spec`` on the conversations, whole, of which `scripts` gave these trajectories."""
        shards = deal([self._known[recorded.id] for recorded in trajectories], SHARD)
        return undeal(self._pool.map([_ReplayJob(spec, tuple(shard)) for shard in shards]))
