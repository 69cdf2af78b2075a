"""One way of spending episodes: a proposer, and the same screen, tuner and race for all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from akv_rsi.policies.vocabulary import capabilities_of
from akv_rsi.search.archive import BREEDERS, Archive, Entry
from akv_rsi.search.candidate import Candidate
from akv_rsi.search.config import SearchConfig
from akv_rsi.search.findings import Critique
from akv_rsi.search.grammar import VERBS
from akv_rsi.search.journal import Journal, Outcome
from akv_rsi.search.ledger import Ledger, Spend
from akv_rsi.search.propose import Brief, Proposer
from akv_rsi.search.race import Heat, Race, Runner
from akv_rsi.search.ranking import by_promise, cheapest_safe, distinct, pick
from akv_rsi.search.screen import Interest, Screen, Screened, tunables
from akv_rsi.search.slack import relaxed
from akv_rsi.search.tune import Trial
from akv_rsi.tasks.episode import Episode

# Of the new candidates of a round, this share are known structures with other numbers.
RETUNE = 1 / 3
PATIENCE = 8  # rounds in a row without a new candidate before an arm gives up
GENERATIONS = 4  # of proposals in a round, before anything is run
TUNED = 3  # more numbers that a promising structure is screened with
PROMISING = 10  # policies to breed from on the word of recorded trajectories
STOCK = 40  # and so many that lose nothing, to combine
EXPLAINED = 4  # failures of a candidate that are explained; each is dearer than an episode at most


class Arm:
    """Asks for episodes round by round until its ledger cannot pay for more.

    All it knows comes from the journal's events: the proposals it made and the episodes it was
    given. So an arm that is fed the same events is in the same state. ``overdraw`` times as many
    structures are drawn as can be run. One that ``combines`` wants to know what is safe however
    little it saves.
    """

    def __init__(
        self,
        name: str,
        proposer: Proposer,
        screen: Screen,
        race: Race,
        config: SearchConfig,
        overdraw: int = 1,
        combines: bool = False,
    ) -> None:
        self.name = name
        self.proposer = proposer
        self.race = race
        self.archive = Archive(config.target, config.rungs[config.archived - 1])
        self.ledger = Ledger(Spend(config.episodes, math.inf, math.inf))
        self.overdraw = overdraw
        self._combines = combines
        self.screened: list[Screened] = []
        self.round = 0
        self.screen = screen
        self._config = config
        self._final = self.ledger.reserve(Spend(config.finalists * config.validation))
        self._tickets: dict[Heat, int] = {}
        self._known = {screen.idle}
        self._barren = 0
        self._evidence: dict[str, tuple[Candidate, Critique]] = {}

    @property
    def done(self) -> bool:
        """Whether it can pay for nothing new, or has found nothing new for several rounds."""
        return self._room() == 0 or self._barren >= PATIENCE

    def ask(self, journal: Journal) -> list[Heat]:
        """The heats of the next round: promotions first, then new candidates.

        A round can be empty although the arm is not done: nothing it drew passed the screen.
        """
        heats = [heat for heat in self.race.promotions() if self._afford(heat)]
        if not self.done:
            count, key = min(self._config.width, self._room()), f"{self.name}/{self.round}"
            asking = Random(f"{self._config.seed}/{key}/ask")
            self.proposer.consult(self._brief([], asking), journal, key)
            event = journal.perform("proposals", key, lambda: Outcome(self._propose(count)))
            entered = self._absorb(event.body)
            self._barren = 0 if entered else self._barren + 1
            heats += entered
        self.round += 1
        return heats

    def tell(self, heat: Heat, episodes: Sequence[Episode]) -> Runner:
        """The episodes of a heat that was asked for."""
        tokens = sum(e.usage.uncached + e.usage.output for e in episodes)
        self.ledger.settle(self._tickets.pop(heat), Spend(len(episodes), tokens))
        runner = self.race.finish(heat, episodes)
        if runner.rung == 1:
            cost = len(episodes) / self.ledger.limit.episodes
            self.proposer.tell(runner.candidate, self._gain(runner), cost)
        if runner.flawed:
            self.archive.discard(runner.candidate.id)
        else:
            self.archive.add(Entry(runner.candidate, runner.scores[-1], _verbs(runner.candidate)))
        return runner

    def puzzle(self) -> Candidate | None:
        """Whose failures to explain next: the most promising that was not explained yet."""
        if self.done or not self.ledger.can_reserve(Spend(EXPLAINED)):
            return None
        for entry in self.archive.entries[:BREEDERS]:
            candidate = entry.candidate
            failed = entry.score.accuracy.estimate < 1
            if failed and candidate.spec.kind == "program" and candidate.id not in self._evidence:
                return candidate
        return None

    def learn(
        self, candidate: Candidate, evidence: Critique, calls: float, journal: Journal
    ) -> None:
        """The evidence on a candidate; its forks are charged, ``calls`` of them as an episode."""
        ticket = self.ledger.reserve(Spend(EXPLAINED))
        effort = evidence.effort
        tokens = effort.computed + effort.output
        self.ledger.settle(ticket, Spend(effort.forks / calls, tokens))
        self._evidence[candidate.id] = (candidate, evidence)
        self.proposer.learn(candidate, evidence, journal)

    def _gain(self, runner: Runner) -> float:
        """How much more promising it is than its parents, or else than all before, on one rung."""
        runners = self.race.runners
        rivals = [runners[i] for i in runner.candidate.parents if i in runners]
        rivals = rivals or [other for other in runners.values() if other is not runner]
        budget = self._config.target
        before = [rival.scores[0].promise(budget)[0] for rival in rivals if rival.scores]
        return runner.scores[0].promise(budget)[0] - max(before, default=0.0)

    def leaders(self) -> list[Runner]:
        """The best so far, as many as there are places on the validation tasks."""
        return self.race.finalists(self._config.finalists)

    def finalists(self, journal: Journal) -> list[Runner]:
        """Who goes to the validation tasks, which were set aside from the beginning.

        Where there are places for two, an arm that ``combines`` gives the last one to its leader in
        numbers that keep as much as the budget allows, which no train task chose.
        """
        found = self.leaders()
        if not self._combines or self._config.finalists < 2 or not found:
            return found
        leader, key = found[0].candidate, f"{self.name}/{self.round}"
        event = journal.perform("proposals", key, lambda: Outcome([_row(self._relaxed(leader))]))
        screened = Screened(**event.body[0])
        self.screened.append(screened)
        if screened.fate:
            return found
        runner = self.race.admit(screened.candidate, screened.support)
        return [*found[: self._config.finalists - 1], runner]

    def _relaxed(self, leader: Candidate) -> Screened:
        return relaxed(self.screen, replace(leader, born=self.round), self._config.target)

    def settle_final(self, episodes: int) -> None:
        """Books the finalists' validation."""
        self.ledger.settle(self._final, Spend(episodes))

    def _room(self) -> int:
        """How many new candidates can be paid for."""
        return int(self.ledger.free.episodes // self.race.rungs[0])

    def _afford(self, heat: Heat) -> bool:
        if not self.ledger.can_reserve(Spend(heat.episodes)):
            return False
        self._tickets[heat] = self.ledger.reserve(Spend(heat.episodes))
        return True

    def _propose(self, count: int) -> list[dict[str, object]]:
        """New candidates with the outcome of the screen; changes nothing.

        More structures are drawn than can be run, in generations that breed from what the screen
        said of the one before. The promising are then tuned on the recorded trajectories, and the
        most promising of all are run, a structure once.
        """
        rng = Random(f"{self._config.seed}/{self.name}/{self.round}")
        outcome = list[Screened]()
        fresh = count - (int(count * RETUNE) if "retune" in self._config.tuning else 0)
        generations = GENERATIONS * (1 if self.round else self._config.warmup)
        for _ in range(generations if self.overdraw > 1 else 1):
            so_far = [*self.screened, *outcome]
            brief = self._brief(outcome, rng)
            drafts = self.proposer.propose(brief, fresh * self.overdraw // GENERATIONS or fresh)
            found = self._screen(drafts, self._interest(so_far))
            outcome += [*found, *self._pruned(found)]
        left = count - min(fresh, len(outcome))
        outcome += self._screen(self._retunes(left, rng), self._interest())
        # A few given structures are tuned as thoroughly as many drawn ones.
        tuned = TUNED * (3 if self.overdraw == 1 else 1) * ("screen" in self._config.tuning)
        for screened in by_promise(outcome, self._config.target)[: 2 * count]:
            trials = self._trials(screened.candidate.structure)
            outcome += self.screen.tune(
                screened, trials, self._interest(), self._config.seed, tuned
            )
        picked = pick(outcome, self._config.target, count)
        return [_row(screened) for screened in picked]

    def _screen(self, drafts: Sequence[Candidate], interest: Interest) -> list[Screened]:
        found = []
        for draft in drafts:
            candidate = replace(draft, born=self.round)
            trials = self._trials(candidate.structure)
            found.append(self.screen.first(candidate, trials, interest, self._config.seed))
        return [screened for screened in found if screened is not None]

    def _pruned(self, found: Sequence[Screened]) -> list[Screened]:
        """The cheapest of the safe without what it does not need: that leaves room for more."""
        safe = cheapest_safe(found, self.screen.idle) if self._combines else []
        shorter = self.screen.prune(safe[0].candidate) if safe else None
        return [] if shorter is None else self._screen([shorter], self._interest())

    def _interest(self, so_far: Sequence[Screened] = ()) -> Interest:
        """After ``so_far`` the floor is the promise of the last that would still be bred from.

        The policies of a list are all run, so they have none.
        """
        target, floor = self._config.target, -math.inf
        ranked = by_promise(so_far, target)
        if self.overdraw > 1 and len(ranked) >= PROMISING:
            floor = ranked[PROMISING - 1].promise(target)
        return Interest(self._known, floor, self._combines)

    def _brief(self, outcome: Sequence[Screened], rng: Random) -> Brief:
        """What the proposer is told after ``outcome`` of this round.

        Of candidates that decide alike on the recorded trajectories it sees the shortest.

        Half of the promising are so by all they do; the others lose nothing, whatever they save:
        rules that lose nothing add up.
        """
        so_far = [*self.screened, *outcome]
        ranked = distinct(by_promise(so_far, self._config.target))
        safe = cheapest_safe(ranked, self.screen.idle)
        best = ranked[:PROMISING] * max(1, len(safe[:STOCK]) // PROMISING)
        return Brief(
            self.archive,
            promising=[screened.candidate for screened in (*best, *safe[:STOCK])],
            safe=[screened.candidate for screened in safe],
            made=len({screened.candidate.structure for screened in so_far}),
            rng=rng,
            evidence=list(self._evidence.values()),
        )

    def _retunes(self, count: int, rng: Random) -> list[Candidate]:
        """Known structures for which the tuner is to find other numbers."""
        parents = {e.candidate.structure: e.candidate for e in self.archive.parents(count, rng)}
        return [
            replace(parent.with_values({}), operator="tune", parents=(parent.id,))
            for parent in parents.values()
            if tunables(parent.spec)
        ]

    def _trials(self, structure: str) -> list[Trial]:
        """All numbers tried for a structure: run, or else screened."""
        same = [s for s in self.screened if s.candidate.structure == structure]
        trials = {s.candidate.id: s.trial(self._config.target) for s in same}
        for identity in trials:
            if runner := self.race.runners.get(identity):
                trials[identity] = _trial(runner, self._config.target) or trials[identity]
        return list(trials.values())

    def _absorb(self, rows: Sequence[dict[str, object]]) -> list[Heat]:
        heats = []
        for row in rows:
            screened = Screened(**row)  # type: ignore[arg-type]  # written by `_row`
            self.screened.append(screened)
            if screened.fate:
                continue
            self._known.add(screened.fingerprint)
            heat = self.race.enter(screened.candidate, screened.support)
            if self._afford(heat):
                heats.append(heat)
        return heats


def _trial(runner: Runner, budget: float) -> Trial | None:
    """What the tuner learns from a run; None before its first score."""
    values = runner.candidate.values
    if runner.flawed:
        return Trial(values)
    if not runner.scores:
        return None
    last = runner.scores[-1]
    return Trial(values, last.accuracy.estimate, last.cost_ratio.estimate - budget)


def _row(screened: Screened) -> dict[str, object]:
    return {name: getattr(screened, name) for name in Screened.__dataclass_fields__}


def _verbs(candidate: Candidate) -> tuple[str, ...]:
    return tuple(sorted(capabilities_of(candidate.spec.source) & VERBS))
