"""What a search moves about: a policy with its origin, and how it scored."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from akv_rsi.policies.spec import PolicySpec, TunableValue
from akv_rsi.tasks import stats
from akv_rsi.tasks.cost import PriceModel
from akv_rsi.tasks.episode import Episode
from akv_rsi.types import Usage


@dataclass(frozen=True, slots=True)
class Candidate:
    """A policy and where it came from.

    ``operator`` made it from ``parents`` (ids) in round ``born``; ``seed`` candidates are
    hand-written, and ``tune`` ones are a parent with other numbers. ``lesson`` is what its maker
    was told to heed, ``advice`` names the strategy in the prompt of a model that made it.
    """

    spec: PolicySpec
    operator: str
    parents: tuple[str, ...] = ()
    born: int = 0
    lesson: str = ""
    advice: str = ""

    @property
    def id(self) -> str:
        """The policy's id: what it does, numbers included."""
        return self.spec.id

    @property
    def structure(self) -> str:
        """What it does but for its numbers: candidates of one structure share a tuning study."""
        content = f"{self.spec.kind}/{self.spec.source or self.spec.name}"
        return hashlib.sha256(content.encode()).hexdigest()[:12]

    @property
    def values(self) -> dict[str, TunableValue]:
        """Its tunables."""
        return dict(self.spec.tunables)

    def with_values(self, values: Mapping[str, TunableValue]) -> Candidate:
        """The same with these numbers."""
        return replace(self, spec=replace(self.spec, tunables=tuple(sorted(values.items()))))


PENALTY = 2.0  # accuracy that one unit of cost ratio beyond the budget is worth


@dataclass(frozen=True, slots=True)
class Score:
    """How a policy did on ``n`` tasks, against keeping everything on the same tasks."""

    n: int
    accuracy: stats.Interval
    cost_ratio: stats.Interval
    kv_read_share: float

    def meets(self, budget: float) -> bool:
        """Whether its cost is within the budget, by the estimate."""
        return self.cost_ratio.estimate <= budget

    def likely_meets(self, budget: float) -> bool:
        """Whether its cost stays within the budget on other tasks with four chances in five.

        The interval holds 95%; its upper part is scaled to the one-sided 80% of a normal law.
        """
        estimate, _, high = self.cost_ratio
        return estimate + (high - estimate) * 0.84 / 1.96 <= budget

    def surely_exceeds(self, budget: float) -> bool:
        """Whether its cost is beyond the budget with the whole interval."""
        return self.cost_ratio.low > budget

    def rank(self, budget: float) -> tuple[float, float, float]:
        """A sort key for the end, larger is better: within the budget, then accurate, then cheap.

        Beyond the budget only the excess counts.
        """
        ratio = self.cost_ratio.estimate
        if self.meets(budget):
            return (1.0, self.accuracy.estimate, -ratio)
        return (0.0, budget - ratio, self.accuracy.estimate)

    def promise(self, budget: float) -> tuple[float, float]:
        """A sort key for the way there: accuracy less a penalty on what exceeds the budget.

        An accurate policy a little beyond the budget is a better parent than a cheap one that
        fails: rules that each save a little add up.
        """
        ratio = self.cost_ratio.estimate
        return (self.accuracy.estimate - PENALTY * max(0.0, ratio - budget), -ratio)


def score(ours: Sequence[Episode], full: Sequence[Episode], prices: PriceModel) -> Score:
    """The score of ``ours`` against keeping everything, ``full``, on the same tasks in order."""
    return Score(
        n=len(ours),
        accuracy=stats.accuracy([e.success for e in ours]),
        cost_ratio=stats.ratio([e.cost for e in ours], [e.cost for e in full]),
        kv_read_share=prices.kv_read_share(sum((e.usage for e in ours), Usage())),
    )


def flaw(episodes: Sequence[Episode]) -> str:
    """Why these episodes may not become fitness: an outcome that is not ``done``; else empty.

    A policy at fault is no candidate, however well its other tasks went; and what was nobody's
    fault says nothing about it.
    """
    bad = next((e for e in episodes if e.outcome != "done"), None)
    return "" if bad is None else f"{bad.outcome}: {bad.detail}"
