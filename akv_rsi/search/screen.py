"""What can be said about a candidate without running the model."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Protocol

from akv_rsi.errors import ConfigError, OpError, PolicyError
from akv_rsi.policies import library
from akv_rsi.policies.lint import lint
from akv_rsi.policies.parity import ParityProof
from akv_rsi.policies.sandbox import check_types
from akv_rsi.policies.spec import PolicySpec, TunableValue
from akv_rsi.policies.tunables import Tunable, tunables_of
from akv_rsi.search.candidate import PENALTY, Candidate
from akv_rsi.search.operators import count_rules, without_rule
from akv_rsi.search.tune import Trial, suggest
from akv_rsi.tasks.replay import Replay
from akv_rsi.types import Trajectory

# Open-loop costs differ a little from what a model makes of it: reject only beyond this margin.
MARGIN = 0.05
# What a prompt that ends so many reliable spans out leaves of it. An agent gets lost gradually: the
# reference agent did 97% of the tasks (n=707) of which it lost nothing, up to two spans as well as
# within one.
FAR, BEYOND = 2.0, 0.6
TOO_DEAR, DUPLICATE, PASSED_OVER, POOR = "dear", "duplicate", "passed over", "unpromising"
# On the first third of the recordings a candidate may fall this far short of the floor. Losing next
# to nothing is easy on a few recordings: what does so is looked at further.
SLACK, SAFE = 0.1, 0.97


class Replays(Protocol):
    """What a screen needs of an evaluator."""

    def replay_cost(self, spec: PolicySpec, trajectories: Sequence[Trajectory]) -> list[Replay]:
        """The decisions and the cost of ``spec`` on each trajectory."""
        ...


@dataclass(frozen=True, slots=True)
class Screened:
    """A candidate after the screen: ``fate`` says why it is not run, empty if it is.

    On the recorded action sequences: ``ratio`` is its cost against keeping everything, ``safety``
    (0 to 1) how well it let the agent see what it then wrote, ``support`` the same and whether it
    kept near the reliable span, and ``fingerprint`` names its decisions. Where a candidate did not
    get that far they are 0 and empty.
    """

    candidate: Candidate
    fate: str = ""
    ratio: float = 0.0
    safety: float = 0.0
    support: float = 0.0
    fingerprint: str = ""

    def promise(self, budget: float) -> float:
        """What to run first, as `Score.promise` but from recorded trajectories alone."""
        return self.support - PENALTY * max(0.0, self.ratio - budget)

    def trial(self, budget: float) -> Trial:
        """What the tuner learns from it."""
        if not self.fingerprint:
            return Trial(self.candidate.values)
        return Trial(self.candidate.values, self.support, self.ratio - budget)


@dataclass(frozen=True, slots=True)
class Interest:
    """What an arm still wants to hear of.

    ``known`` fingerprints are not run again. A candidate whose promise on some of the recordings is
    far below ``floor`` is not looked at further, unless it is safe and the arm ``combines`` what is
    safe, whatever it saves.
    """

    known: Set[str] = frozenset()
    floor: float = -math.inf
    combines: bool = False

    def ends(self, screened: Screened, budget: float) -> bool:
        """Whether enough is known of a candidate after the first recordings."""
        if self.combines and screened.safety >= SAFE:
            return False
        return screened.promise(budget) < self.floor - SLACK


ANY = Interest()


class Screen:
    """Lint, then a replay of recorded trajectories: errors, duplicates and what is too dear."""

    def __init__(
        self,
        replays: Replays,
        recordings: Sequence[Trajectory],
        more: Sequence[Trajectory],
        full: PolicySpec,
        budget: float,
    ) -> None:
        """Candidates are checked on ``recordings``, and those that are safe there on ``more``."""
        self.budget = budget
        self._replays = replays
        # Suites, and short and long tasks, come in turn: every third one is a fair sample of them.
        self._recordings = [*recordings[::3], *recordings[1::3], *recordings[2::3]]
        self._more = more
        outcome = replays.replay_cost(full, [*self._recordings, *more])
        self._full_costs = [replay.cost for replay in outcome]
        self._few = len(recordings[::3])
        self.idle = _fingerprint(outcome)  # what one that never acts looks like

    def check(self, candidate: Candidate, interest: Interest = ANY) -> Screened:
        """The fate of one candidate."""
        few, rest = self._recordings[: self._few], self._recordings[self._few :]
        try:
            if candidate.spec.kind == "program":
                lint(candidate.spec.source)
            outcome = self._replays.replay_cost(candidate.spec, few)
            screened = self._measure(candidate, outcome)
            if interest.ends(screened, self.budget):
                return replace(screened, fate=POOR, fingerprint="")
            outcome = [*outcome, *self._replays.replay_cost(candidate.spec, rest)]
            screened = self._measure(candidate, outcome)
            if screened.safety >= SAFE and (interest.combines or not screened.fate):
                outcome = [*outcome, *self._replays.replay_cost(candidate.spec, self._more)]
                screened = self._measure(candidate, outcome)
        except (PolicyError, OpError, ConfigError) as error:
            return Screened(candidate, f"{type(error).__name__}: {error}")
        return (
            replace(screened, fate=DUPLICATE)
            if screened.fingerprint in interest.known
            else screened
        )

    def _measure(self, candidate: Candidate, outcome: Sequence[Replay]) -> Screened:
        count = len(outcome)
        ratio = sum(replay.cost for replay in outcome) / sum(self._full_costs[:count])
        safety = sum(r.safety for r in outcome) / count
        support = sum(r.safety * (BEYOND if r.reach > FAR else 1) for r in outcome) / count
        fate = TOO_DEAR if ratio > self.budget * (1 + MARGIN) else ""
        return Screened(candidate, fate, ratio, safety, support, _fingerprint(outcome))

    def first(
        self,
        candidate: Candidate,
        trials: Sequence[Trial],
        interest: Interest,
        seed: int,
    ) -> Screened | None:
        """``candidate`` with its parent's numbers, else the tuner's; None when all were tried."""
        try:
            declared = tunables(candidate.spec)
        except PolicyError as error:
            return Screened(candidate, f"{type(error).__name__}: {error}")
        values = _inherited(declared, candidate.values) if candidate.spec.tunables else None
        if values is None or any(trial.values == values for trial in trials):
            values = suggest(declared, trials, seed, f"{candidate.structure}/{len(trials)}")
        if values is None:
            return None
        return self.check(candidate.with_values(values), interest)

    def tune(
        self,
        screened: Screened,
        trials: Sequence[Trial],
        interest: Interest,
        seed: int,
        count: int,
    ) -> list[Screened]:
        """The same structure with up to ``count`` other numbers."""
        tried, found = [*trials, screened.trial(self.budget)], list[Screened]()
        for _ in range(count):
            question = f"{screened.candidate.structure}/{len(tried)}"
            values = suggest(tunables(screened.candidate.spec), tried, seed, question)
            if values is None:
                break
            found.append(self.check(screened.candidate.with_values(values), interest))
            tried.append(found[-1].trial(self.budget))
        return found

    def prune(self, candidate: Candidate) -> Candidate | None:
        """``candidate`` without the rules that change nothing on the recordings; None if all do."""
        few, rest = self._recordings[: self._few], self._recordings[self._few :]
        outcome = self._replays.replay_cost(candidate.spec, self._recordings)
        known = [replay.fingerprint for replay in outcome]
        shorter = candidate
        for number in reversed(range(count_rules(candidate.spec.source))):
            source = without_rule(shorter.spec.source, number)
            if source is None:
                continue
            values = _inherited(tunables_of(source), shorter.values)
            spec = replace(shorter.spec, source=source)
            tried = Candidate(spec, "prune", (candidate.id,)).with_values(values)
            if self._acts_as(known[: self._few], tried.spec, few) and self._acts_as(
                known[self._few :], tried.spec, rest
            ):
                shorter = tried
        return None if shorter is candidate else shorter

    def _acts_as(
        self, known: Sequence[str], spec: PolicySpec, recordings: Sequence[Trajectory]
    ) -> bool:
        try:
            outcome = self._replays.replay_cost(spec, recordings)
        except (PolicyError, OpError):
            return False
        return [replay.fingerprint for replay in outcome] == known

    def problem(self, source: str) -> str:
        """Why a policy's source is refused, with line numbers where there are any; else empty.

        Lint, types, and a replay in the sandbox and then in plain Python, which must agree.
        """
        spec = PolicySpec("draft", source=source)
        try:
            lint(source)
            check_types(source)
            self._replays.replay_cost(spec, self._recordings)
        except (PolicyError, OpError, ConfigError) as error:
            return str(error)
        if self.prove(Candidate(spec, "draft")) is None:
            return "it decides differently in the sandbox and in plain Python"
        return ""

    def prove(self, candidate: Candidate) -> ParityProof | None:
        """That it decides alike in the sandbox and in plain Python on the recordings; None if not.

        The sandbox goes first: what fails there never runs outside. Editors are no programs: for
        them there is nothing to prove.
        """
        calls = sum(len(recorded.calls) for recorded in self._recordings)
        digests = []
        for trusted in (False, True) if candidate.spec.kind == "program" else (True,):
            try:
                spec = replace(candidate.spec, trusted=trusted)
                outcome = self._replays.replay_cost(spec, self._recordings)
            except (PolicyError, OpError):
                return None
            digests.append("-".join(replay.fingerprint for replay in outcome))
        if len(set(digests)) > 1:
            return None
        return ParityProof(calls, hashlib.sha256(digests[0].encode()).hexdigest())


def tunables(spec: PolicySpec) -> tuple[Tunable, ...]:
    """The numbers a policy leaves to the tuner; `LintError` when a declaration is malformed."""
    if spec.kind == "program":
        return tunables_of(spec.source)
    return library.tunables(spec.name)


def _inherited(
    declared: Sequence[Tunable], values: Mapping[str, TunableValue]
) -> dict[str, TunableValue]:
    """Its parent's numbers where they still fit, else the defaults."""
    fitting = {t.name: values.get(t.name, t.default) for t in declared}
    return {t.name: v if t.low <= (v := fitting[t.name]) <= t.high else t.default for t in declared}


def _fingerprint(outcome: Sequence[Replay]) -> str:
    return "-".join(replay.fingerprint[:4] for replay in outcome)
