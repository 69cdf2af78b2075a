"""Few tasks for many, all tasks for few: asynchronous successive halving with early stops.

A rung is a number of train tasks; the tasks are the same for everyone and in one order, so any two
candidates are paired on the tasks both have done. The most promising ``1/eta`` of those that
reached a rung go on to the next one. Who is flawed, surely less accurate than the incumbent, or
surely dearer than the budget, goes no further.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from akv_rsi.search.accept import Gate, Judgement
from akv_rsi.search.candidate import Candidate, Score, flaw, score
from akv_rsi.tasks.cost import PriceModel
from akv_rsi.tasks.episode import Episode


@dataclass(slots=True)
class Runner:
    """A candidate in the race: its episodes on the first tasks, and why it stopped (or empty).

    ``flawed`` ones stopped for an outcome that must not become fitness. ``support`` is what the
    screen said: on few tasks many come out equal.
    """

    candidate: Candidate
    support: float = 0.0
    episodes: list[Episode] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)  # one per rung reached
    stopped: str = ""
    flawed: bool = False
    judgement: Judgement | None = None

    @property
    def rung(self) -> int:
        """How many rungs it has reached."""
        return len(self.scores)


@dataclass(frozen=True, slots=True)
class Heat:
    """What is to be run next: ``candidate`` on the tasks ``[start, end)``."""

    candidate: Candidate
    start: int
    end: int

    @property
    def episodes(self) -> int:
        """What it takes."""
        return self.end - self.start


class Race:
    """The candidates of one arm, ranked rung by rung.

    R1  a runner with a flaw has no score and is never promoted
    R2  of ``n`` runners that reached a rung at most ``max(1, n // eta)`` are promoted from it
    R3  the incumbent was scored on all tasks, and only a judgement ``better`` replaces it by
        another within the budget
    """

    def __init__(
        self,
        rungs: Sequence[int],
        eta: int,
        budget: float,
        full: Sequence[Episode],
        prices: PriceModel,
        gate: Gate,
    ) -> None:
        self.rungs = tuple(rungs)
        self.eta = eta
        self.budget = budget
        self.runners: dict[str, Runner] = {}
        self.incumbent: Runner | None = None
        self._full = full
        self._prices = prices
        self._gate = gate

    def enter(self, candidate: Candidate, support: float = 0.0) -> Heat:
        """A new candidate: its first heat."""
        self.admit(candidate, support)
        return Heat(candidate, 0, self.rungs[0])

    def admit(self, candidate: Candidate, support: float) -> Runner:
        """A new candidate that runs on no train task."""
        runner = self.runners[candidate.id] = Runner(candidate, support)
        return runner

    def promotions(self) -> list[Heat]:
        """Those who may go on, the furthest first; asking changes nothing."""
        heats = []
        for rung in range(len(self.rungs) - 1, 0, -1):
            reached = [r for r in self.runners.values() if r.rung >= rung]
            reached.sort(key=lambda r: self._ahead(r, rung))
            quota = max(1, len(reached) // self.eta)
            # Who has gone on already counts against the quota, also when later ones rank above.
            quota -= sum(r.rung > rung for r in reached)
            waiting = [r for r in reversed(reached) if r.rung == rung and not r.stopped]
            heats += [
                Heat(r.candidate, self.rungs[rung - 1], self.rungs[rung])
                for r in waiting[: max(0, quota)]
            ]
        return heats

    def finish(self, heat: Heat, episodes: Sequence[Episode]) -> Runner:
        """The results of a heat."""
        runner = self.runners[heat.candidate.id]
        runner.stopped = flaw(episodes)
        runner.flawed = bool(runner.stopped)
        if runner.flawed:
            return runner
        runner.episodes.extend(episodes)
        done = len(runner.episodes)
        result = score(runner.episodes, self._full[:done], self._prices)
        runner.scores.append(result)
        if self.incumbent is not None:
            rivals = self.incumbent.episodes[:done]
            runner.judgement = self._gate.judge(runner.episodes, rivals)
        if result.surely_exceeds(self.budget):
            runner.stopped = "beyond the budget"
        elif runner.judgement is not None and runner.judgement.verdict == "worse":
            runner.stopped = "worse than the incumbent"
        elif done == self.rungs[-1] and self._accepts(runner):
            self.incumbent = runner
        return runner

    def _accepts(self, runner: Runner) -> bool:
        if not runner.scores[-1].meets(self.budget):
            return False
        return runner.judgement is None or runner.judgement.verdict == "better"

    def finalists(self, count: int) -> list[Runner]:
        """The best within the budget, by the lower limit of their accuracy: few tasks prove little.

        A structure is there once, in its best numbers. When nothing is within the budget, the
        nearest to it.
        """
        scored = [r for r in self.runners.values() if r.scores and not r.flawed]
        scored.sort(key=self._promise, reverse=True)
        chosen: dict[str, Runner] = {}
        for runner in scored:
            chosen.setdefault(runner.candidate.structure, runner)
        return list(chosen.values())[:count]

    def _promise(self, runner: Runner) -> tuple[bool, float, float, float, str]:
        last = runner.scores[-1]
        within = last.meets(self.budget)
        ratio = last.cost_ratio.estimate
        first = last.accuracy.low if within else -ratio
        return (within, first, runner.support, -ratio, runner.candidate.id)

    def _ahead(self, runner: Runner, rung: int) -> tuple[float, float, float, str]:
        promise, cheapness = runner.scores[rung - 1].promise(self.budget)
        return (promise, runner.support, cheapness, runner.candidate.id)
