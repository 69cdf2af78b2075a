"""From episodes to the row of a table: accuracy, and cost against keep-everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from akv_rsi.errors import TaskError
from akv_rsi.tasks.cost import PriceModel
from akv_rsi.tasks.episode import Episode
from akv_rsi.tasks.stats import Interval, accuracy, ratio
from akv_rsi.types import Usage


@dataclass(frozen=True, slots=True)
class Row:
    """One policy on one set of tasks, ``n`` of which count.

    ``in_span`` and ``beyond_span`` are the accuracies on tasks that stay inside the model's
    reliable span when everything is kept, and on the others; None where there are none.
    ``fixed_ratio`` is the cost ratio on fixed action sequences. ``failures`` counts policy errors
    (they are failed tasks), ``excluded`` tasks lost to infrastructure (they are no tasks at all).
    """

    accuracy: Interval
    cost_ratio: Interval
    kv_read_share: float
    n: int
    in_span: Interval | None
    beyond_span: Interval | None
    fixed_ratio: float | None = None
    failures: int = 0
    excluded: int = 0

    def to_json(self) -> dict[str, Any]:
        """The row as plain data; intervals as an estimate and its ``_ci`` pair."""
        out: dict[str, Any] = {"kv_read_share": self.kv_read_share, "n": self.n}
        for name in ("accuracy", "cost_ratio", "in_span", "beyond_span"):
            interval: Interval | None = getattr(self, name)
            key = f"{name}_accuracy" if name.endswith("span") else name
            out[key] = interval and interval.estimate
            out[f"{key}_ci"] = interval and [interval.low, interval.high]
        return out | {
            "fixed_cost_ratio": self.fixed_ratio,
            "policy_errors": self.failures,
            "excluded": self.excluded,
        }


def pairs(ours: Sequence[Episode], full: Sequence[Episode]) -> list[tuple[Episode, Episode]]:
    """Episodes of a policy beside keep-everything's of the same tasks, in order.

    Tasks that either lost to infrastructure are left out: they say nothing about a policy.
    """
    both = list(zip(ours, full, strict=True))
    if wrong := [a for a, b in both if a.task != b.task]:
        raise ValueError(f"paired episodes need the same tasks: {wrong[0].task} has no partner")
    return [(a, b) for a, b in both if "infrastructure" not in (a.outcome, b.outcome)]


def charged(ours: Episode, full: Episode) -> float:
    """What an episode counts for in a cost ratio.

    A policy error ends an episode early; lest that look cheap, it costs at least what keeping
    everything did.
    """
    return max(ours.cost, full.cost) if ours.outcome == "policy_error" else ours.cost


def summarise(
    ours: Sequence[Episode],
    full: Sequence[Episode],
    prices: PriceModel,
    seed: int = 0,
    fixed: tuple[float, float] | None = None,
) -> Row:
    """The row of a policy, given keep-everything's episodes ``full`` of the same tasks.

    ``fixed`` is what both cost on the same recorded sequences. `TaskError` when no task is left.
    """
    both = pairs(ours, full)
    if not both:
        detail = next((e.detail for e in (*ours, *full) if e.detail), "no tasks")
        raise TaskError(f"no episode could be run: {detail}")
    usage = sum((a.usage for a, _ in both), Usage())
    return Row(
        accuracy=accuracy([a.success for a, _ in both]),
        cost_ratio=ratio([charged(a, b) for a, b in both], [b.cost for _, b in both], seed),
        kv_read_share=prices.kv_read_share(usage),
        n=len(both),
        in_span=_accuracy([a for a, b in both if b.in_span]),
        beyond_span=_accuracy([a for a, b in both if not b.in_span]),
        fixed_ratio=fixed and fixed[0] / fixed[1],
        failures=sum(a.outcome == "policy_error" for a, _ in both),
        excluded=len(ours) - len(both),
    )


def engine_figures(episodes: Sequence[Episode]) -> dict[str, float]:
    """What the engine measured over all calls: sums of tokens; times as medians and 95% quantiles.

    Keys are those of `Measured`; times are seconds, as met in the batches of the run. Empty without
    measurements.
    """
    calls = [measured for episode in episodes for measured in episode.measured]
    if not calls:
        return {}
    figures: dict[str, float] = {"calls": len(calls)}
    for name in ("prompt", "cached", "prefilled", "refreshed", "attended", "output"):
        figures[name] = sum(getattr(call, name) for call in calls)
    for name in ("ttft", "itl"):
        p50, p95 = np.quantile([getattr(call, name) for call in calls], [0.5, 0.95])
        figures |= {f"{name}_p50": float(p50), f"{name}_p95": float(p95)}
    return figures


def _accuracy(episodes: Sequence[Episode]) -> Interval | None:
    return accuracy([e.success for e in episodes]) if episodes else None
