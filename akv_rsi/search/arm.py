"""One way of spending episodes: a proposer, and the same screen, tuner and race for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from akv_rsi.policies.vocabulary import capabilities_of
from akv_rsi.search.archive import Archive, Entry
from akv_rsi.search.candidate import Candidate
from akv_rsi.search.config import SearchConfig
from akv_rsi.search.grammar import VERBS
from akv_rsi.search.journal import Journal, Outcome
from akv_rsi.search.ledger import Ledger, Spend
from akv_rsi.search.propose import Brief, Proposer
from akv_rsi.search.race import Heat, Race, Runner
from akv_rsi.search.screen import Screen, Screened, tunables, with_values
from akv_rsi.search.tune import Trial
from akv_rsi.tasks.episode import Episode

# Of the new candidates of a round, this share are known structures with other numbers.
RETUNE = 1 / 3


class Arm:
    """Asks for episodes round by round until its ledger cannot pay for more.

    All it knows comes from the journal's events: the proposals it made and the episodes it was
    given. So an arm that is fed the same events is in the same state.
    """

    def __init__(
        self, name: str, proposer: Proposer, screen: Screen, race: Race, config: SearchConfig
    ) -> None:
        self.name = name
        self.proposer = proposer
        self.race = race
        self.archive = Archive(config.target, config.rungs[config.archived - 1])
        self.ledger = Ledger(Spend(config.episodes, float("inf"), float("inf")))
        self.screened: list[Screened] = []
        self.round = 0
        self.screen = screen
        self._config = config
        self._final = self.ledger.reserve(Spend(config.finalists * config.validation))
        self._tickets: dict[Heat, int] = {}
        self._known = {screen.idle}
        self._rejected: list[tuple[str, Trial]] = []

    def ask(self, journal: Journal) -> list[Heat]:
        """The heats of the next round: promotions first, then new candidates. Empty at the end."""
        heats = [heat for heat in self.race.promotions() if self._afford(heat)]
        room = int(self.ledger.free.episodes // self.race.rungs[0])
        count = min(self._config.width, room)
        if count > 0:
            key = f"{self.name}/{self.round}"
            event = journal.perform("proposals", key, lambda: Outcome(self._propose(count)))
            heats += self._absorb(event.body)
        self.round += 1
        return heats

    def tell(self, heat: Heat, episodes: Sequence[Episode]) -> Runner:
        """The episodes of a heat that was asked for."""
        tokens = sum(e.usage.uncached + e.usage.output for e in episodes)
        self.ledger.settle(self._tickets.pop(heat), Spend(len(episodes), tokens))
        runner = self.race.finish(heat, episodes)
        if runner.flawed:
            self.archive.discard(runner.candidate.id)
        else:
            self.archive.add(Entry(runner.candidate, runner.scores[-1], _verbs(runner.candidate)))
        return runner

    def finalists(self) -> list[Runner]:
        """Who goes to the validation tasks, which were set aside from the beginning."""
        return self.race.finalists(self._config.finalists)

    def settle_final(self, episodes: int) -> None:
        """Books the finalists' validation."""
        self.ledger.settle(self._final, Spend(episodes))

    def _afford(self, heat: Heat) -> bool:
        if not self.ledger.can_reserve(Spend(heat.episodes)):
            return False
        self._tickets[heat] = self.ledger.reserve(Spend(heat.episodes))
        return True

    def _propose(self, count: int) -> list[dict[str, object]]:
        """New candidates with the outcome of the screen; changes nothing."""
        rng = Random(f"{self._config.seed}/{self.name}/{self.round}")
        retunes = self._retunes(int(count * RETUNE), rng)
        made = sum(s.candidate.operator != "tune" for s in self.screened)
        drafts = self.proposer.propose(Brief(self.archive, made, rng), count - len(retunes))
        known, outcome = set(self._known), list[Screened]()
        for draft in [*drafts, *retunes]:
            candidate = replace(draft, born=self.round)
            trials = self._trials(candidate.structure)
            settled = self.screen.settle(candidate, trials, known, self._config.seed)
            known |= {screened.fingerprint for screened in settled if not screened.fate}
            outcome += settled
        return [_row(screened) for screened in outcome]

    def _retunes(self, count: int, rng: Random) -> list[Candidate]:
        """Known structures for which the tuner is to find other numbers."""
        parents = {e.candidate.structure: e.candidate for e in self.archive.parents(count, rng)}
        return [
            replace(with_values(parent, {}), operator="tune", parents=(parent.id,))
            for parent in parents.values()
            if tunables(parent.spec)
        ]

    def _trials(self, structure: str) -> list[Trial]:
        """All numbers tried for a structure: run, or screened out."""
        runners = self.race.runners.values()
        return [
            *(trial for known, trial in self._rejected if known == structure),
            *(self._trial(r) for r in runners if r.candidate.structure == structure),
        ]

    def _trial(self, runner: Runner) -> Trial:
        values = runner.candidate.values
        if not runner.scores:
            return Trial(values)
        last = runner.scores[-1]
        excess = last.cost_ratio.estimate - self._config.target
        return Trial(values, last.accuracy.estimate, excess)

    def _absorb(self, rows: Sequence[dict[str, object]]) -> list[Heat]:
        heats = []
        for row in rows:
            screened = Screened(**row)  # type: ignore[arg-type]  # written by `_row`
            candidate = screened.candidate
            self.screened.append(screened)
            if screened.fate:
                self._rejected.append((candidate.structure, self.screen.trial(screened)))
                continue
            self._known.add(screened.fingerprint)
            heat = self.race.enter(candidate)
            if self._afford(heat):
                heats.append(heat)
        return heats


def _row(screened: Screened) -> dict[str, object]:
    return {name: getattr(screened, name) for name in Screened.__dataclass_fields__}


def _verbs(candidate: Candidate) -> tuple[str, ...]:
    return tuple(sorted(capabilities_of(candidate.spec.source) & VERBS))
