"""What can be said about a candidate without running the model."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from akv_rsi.errors import OpError, PolicyError
from akv_rsi.policies import library
from akv_rsi.policies.lint import lint
from akv_rsi.policies.parity import ParityProof
from akv_rsi.policies.spec import PolicySpec, TunableValue
from akv_rsi.policies.tunables import Tunable, tunables_of
from akv_rsi.search.candidate import Candidate
from akv_rsi.search.tune import Trial, suggest
from akv_rsi.tasks.replay import Replay
from akv_rsi.types import Trajectory

# Open-loop costs differ a little from what a model makes of it: reject only beyond this margin.
MARGIN = 0.05
# Numbers tried before a structure counts as too dear, or as known whatever its numbers are.
SETTINGS = {"dear": 4, "duplicate": 2}
TOO_DEAR, DUPLICATE = SETTINGS


class Replays(Protocol):
    """What a screen needs of an evaluator."""

    def replay_cost(self, spec: PolicySpec, trajectories: Sequence[Trajectory]) -> list[Replay]:
        """The decisions and the cost of ``spec`` on each trajectory."""
        ...


@dataclass(frozen=True, slots=True)
class Screened:
    """A candidate after the screen: ``fate`` says why it is not run, empty if it is.

    ``ratio`` is its cost on the recorded action sequences against keeping everything, and
    ``fingerprint`` names its decisions there. Where it did not get that far they are 0 and empty.
    """

    candidate: Candidate
    fate: str = ""
    ratio: float = 0.0
    fingerprint: str = ""


class Screen:
    """Lint, then a replay of recorded trajectories: errors, duplicates and what is too dear."""

    def __init__(
        self, replays: Replays, recordings: Sequence[Trajectory], full: PolicySpec, budget: float
    ) -> None:
        self.budget = budget
        self._replays = replays
        self._recordings = recordings
        outcome = replays.replay_cost(full, recordings)
        self._full_cost = sum(replay.cost for replay in outcome)
        self.idle = _fingerprint(outcome)  # what a policy that never acts looks like

    def check(self, candidate: Candidate, known: Collection[str] = ()) -> Screened:
        """The fate of one candidate; ``known`` fingerprints are not run again."""
        try:
            if candidate.spec.kind == "program":
                lint(candidate.spec.source)
            outcome = self._replays.replay_cost(candidate.spec, self._recordings)
        except (PolicyError, OpError) as error:
            return Screened(candidate, f"{type(error).__name__}: {error}")
        ratio = sum(replay.cost for replay in outcome) / self._full_cost
        screened = Screened(candidate, "", ratio, _fingerprint(outcome))
        if screened.fingerprint in known:
            return replace(screened, fate=DUPLICATE)
        if ratio > self.budget * (1 + MARGIN):
            return replace(screened, fate=TOO_DEAR)
        return screened

    def settle(
        self, candidate: Candidate, trials: Sequence[Trial], known: Collection[str], seed: int
    ) -> list[Screened]:
        """``candidate`` with numbers that pass: all that were screened, the last one decides."""
        spec = candidate.spec
        try:
            declared = tunables(spec)
        except PolicyError as error:
            return [Screened(candidate, f"{type(error).__name__}: {error}")]
        tried, outcome = list(trials), list[Screened]()
        values = _inherited(declared, candidate.values) if spec.tunables else None
        while True:
            if values is None or any(trial.values == values for trial in tried):
                question = f"{candidate.structure}/{len(tried)}"
                values = suggest(declared, tried, seed, question)
            if values is None:
                break
            outcome.append(self.check(with_values(candidate, values), known))
            fate = outcome[-1].fate
            if sum(s.fate == fate for s in outcome) >= SETTINGS.get(fate, 1):
                break
            tried.append(self.trial(outcome[-1]))
            values = None
        return outcome

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

    def trial(self, screened: Screened) -> Trial:
        """What the tuner learns from a setting that was never run."""
        return Trial(screened.candidate.values, None, max(0.0, screened.ratio - self.budget))


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
