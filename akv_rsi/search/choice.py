"""Who is left at the end: finalists, and the choice that goes to the sealed test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from akv_rsi.policies import library
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.search.candidate import Candidate, Score
from akv_rsi.search.race import Runner
from akv_rsi.tasks.episode import Episode

ORACLE = PolicySpec("oracle", kind="oracle")


def keep_everything() -> PolicySpec:
    """The policy everything is measured against."""
    return library.spec("full")


@dataclass(frozen=True, slots=True)
class Finalist:
    """A candidate with its validation ``episodes``; ``both`` is the score with train's as well."""

    runner: Runner
    episodes: tuple[Episode, ...]
    validation: Score
    both: Score

    @property
    def candidate(self) -> Candidate:
        """The policy."""
        return self.runner.candidate


@dataclass(frozen=True, slots=True)
class Choice:
    """What goes to the sealed test: the search's ``best``, best-of-N's, and the baselines."""

    best: Finalist
    sample: Finalist | None
    baselines: tuple[PolicySpec, ...]

    @property
    def specs(self) -> tuple[PolicySpec, ...]:
        """Every policy to be tested once: the two references are among them."""
        sample = [] if self.sample is None else [self.sample.candidate.spec]
        every = (self.best.candidate.spec, keep_everything(), ORACLE, *sample, *self.baselines)
        return tuple({spec.id: spec for spec in every}.values())


def rank(finalists: Sequence[Finalist], budget: float) -> list[Finalist]:
    """The best first: likely within the budget, then by validation accuracy, then the cheaper.

    The cost is judged on train and validation tasks together, with its interval, since the test
    tasks are others. The accuracy is validation's alone, since train chose the finalists.
    """

    def key(f: Finalist) -> tuple[bool, tuple[float, float, float], str]:
        return (f.both.likely_meets(budget), f.validation.rank(budget), f.candidate.id)

    return sorted(finalists, key=key, reverse=True)
