"""When one policy may replace another: only when the difference is beyond its noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from akv_rsi.errors import TaskError
from akv_rsi.tasks import stats
from akv_rsi.tasks.episode import Episode


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with what it rests on: paired differences in accuracy and, relative, in cost."""

    verdict: stats.Verdict
    accuracy: stats.Interval
    cost: stats.Interval


class Gate(Protocol):
    """Judges a challenger against the incumbent on the same tasks."""

    def judge(self, ours: Sequence[Episode], theirs: Sequence[Episode]) -> Judgement:
        """Whether ``ours`` is better, worse or not told apart; both in the same task order."""
        ...


@dataclass(frozen=True, slots=True)
class PairedGate:
    """Better: more accurate beyond noise; or not less accurate, and cheaper beyond noise.

    An equal policy has no difference to show on any task, so it is undecided: never better, and
    never worse either.
    """

    confidence: float = 0.95

    def judge(self, ours: Sequence[Episode], theirs: Sequence[Episode]) -> Judgement:
        """The verdict of the accuracy, and where that is undecided, of the cost."""
        successes = ([e.success for e in ours], [e.success for e in theirs])
        comparison = stats.compare(*successes, confidence=self.confidence)
        ratio = stats.ratio([e.cost for e in ours], [e.cost for e in theirs])
        cost = stats.Interval(*(value - 1 for value in ratio))
        verdict = comparison.verdict
        if verdict == "undecided" and comparison.difference.estimate >= 0 and cost.high < 0:
            verdict = "better"
        if verdict == "undecided" and comparison.difference.estimate <= 0 and cost.low > 0:
            verdict = "worse"
        return Judgement(verdict, comparison.difference, cost)


def check_gate(gate: Gate, first: Sequence[Episode], again: Sequence[Episode]) -> Judgement:
    """The A/A check: one policy, evaluated twice, must come out undecided; else `TaskError`.

    If it does not, evaluations are not repeatable enough for the gate, and its verdicts mean
    nothing.
    """
    judgement = gate.judge(first, again)
    if judgement.verdict != "undecided":
        raise TaskError(
            f"the A/A check failed: the same policy came out {judgement.verdict} than itself "
            f"(accuracy {judgement.accuracy.estimate:+.3f}, cost {judgement.cost.estimate:+.3f}); "
            "evaluations of this model or suite are not repeatable"
        )
    return judgement
