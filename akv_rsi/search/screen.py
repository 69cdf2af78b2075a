"""What can be said about a candidate without running the model."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
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
# On the first third of the recordings a candidate may fall this far short of the floor, and what
# loses next to nothing is looked at further in any case.
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
        """Candidates are checked on ``recordings``, and those that would be run on ``more``."""
        self.budget = budget
        self._replays = replays
        # Suites, and short and long tasks, come in turn: every third one is a fair sample of them.
        self._recordings = [*recordings[::3], *recordings[1::3], *recordings[2::3]]
        self._more = more
        outcome = replays.replay_cost(full, [*self._recordings, *more])
        self._full_costs = [replay.cost for replay in outcome]
        self._few = len(recordings[::3])
        self.idle = _fingerprint(outcome[: len(recordings)])  # what one that never acts looks like

    def check(
        self, candidate: Candidate, known: Collection[str] = (), floor: float = -math.inf
    ) -> Screened:
        """The fate of one candidate; ``known`` fingerprints are not run again.

        One whose promise is far below ``floor`` on some of the recordings is not looked at further.
        """
        few, rest = self._recordings[: self._few], self._recordings[self._few :]
        try:
            if candidate.spec.kind == "program":
                lint(candidate.spec.source)
            start = self._replays.replay_cost(candidate.spec, few)
            screened = self._measure(candidate, start)
            if screened.promise(self.budget) < floor - SLACK and screened.safety < SAFE:
                return replace(screened, fate=POOR, fingerprint="")
            outcome = [*start, *self._replays.replay_cost(candidate.spec, rest)]
        except (PolicyError, OpError, ConfigError) as error:
            return Screened(candidate, f"{type(error).__name__}: {error}")
        screened = self._measure(candidate, outcome)
        if screened.fingerprint in known:
            return replace(screened, fate=DUPLICATE)
        return self._priced(screened)

    def review(self, screened: Screened) -> Screened:
        """``screened`` as measured on all recordings: a few of them may have been kind to it."""
        candidate, first = screened.candidate, screened.fingerprint
        try:
            every = self._replays.replay_cost(candidate.spec, [*self._recordings, *self._more])
        except (PolicyError, OpError) as error:
            return Screened(candidate, f"{type(error).__name__}: {error}")
        return self._priced(replace(self._measure(candidate, every), fingerprint=first))

    def _priced(self, screened: Screened) -> Screened:
        dear = screened.ratio > self.budget * (1 + MARGIN)
        return replace(screened, fate=TOO_DEAR) if dear else screened

    def _measure(self, candidate: Candidate, outcome: Sequence[Replay]) -> Screened:
        count = len(outcome)
        ratio = sum(replay.cost for replay in outcome) / sum(self._full_costs[:count])
        safety = sum(r.safety for r in outcome) / count
        support = sum(r.safety * (BEYOND if r.reach > FAR else 1) for r in outcome) / count
        return Screened(candidate, "", ratio, safety, support, _fingerprint(outcome))

    def first(
        self,
        candidate: Candidate,
        trials: Sequence[Trial],
        known: Collection[str],
        seed: int,
        floor: float = -math.inf,
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
        return self.check(with_values(candidate, values), known, floor)

    def tune(
        self,
        screened: Screened,
        trials: Sequence[Trial],
        known: Collection[str],
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
            found.append(self.check(with_values(screened.candidate, values), known))
            tried.append(found[-1].trial(self.budget))
        return found

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


def with_values(candidate: Candidate, values: Mapping[str, TunableValue]) -> Candidate:
    """The candidate with these numbers."""
    return replace(candidate, spec=replace(candidate.spec, tunables=tuple(sorted(values.items()))))


def _inherited(
    declared: Sequence[Tunable], values: Mapping[str, TunableValue]
) -> dict[str, TunableValue]:
    """Its parent's numbers where they still fit, else the defaults."""
    fitting = {t.name: values.get(t.name, t.default) for t in declared}
    return {t.name: v if t.low <= (v := fitting[t.name]) <= t.high else t.default for t in declared}


def _fingerprint(outcome: Sequence[Replay]) -> str:
    return "-".join(replay.fingerprint[:4] for replay in outcome)
