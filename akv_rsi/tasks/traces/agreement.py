"""Recorded against modelled usage: do they agree, and if not, why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from akv_rsi.tasks.traces.calibrate import Scale
from akv_rsi.tasks.traces.misses import Miss, by_cause
from akv_rsi.tasks.traces.model import Modelled
from akv_rsi.tasks.traces.provider import Bill, Tariff, add_up
from akv_rsi.tasks.traces.trace import Trace
from akv_rsi.types import Usage

TOLERANCE = 0.1


@dataclass(frozen=True, slots=True)
class Agreement:
    """How the modelled cost of keeping everything compares with the recorded one.

    ``compared`` is what: the cost; the prompt tokens, where the file does not tell cached ones; or
    nothing. ``difference`` is relative to the record. ``why`` explains a difference beyond 10%, or
    that nothing could be compared; a sum that agrees though single prompts do not is no agreement.
    ``stubs`` counts records whose output is under half of what the file shows; the larger is used
    on both sides.
    """

    compared: Literal["cost", "prompt tokens", "nothing"]
    recorded: Usage
    modelled: Usage
    recorded_cost: float
    modelled_cost: float
    difference: float | None
    agrees: bool
    why: str
    stubs: int


def compare(
    trace: Trace,
    scale: Scale,
    contexts: Sequence[Modelled],
    full: Bill,
    misses: Sequence[Miss],
    tariff: Tariff,
) -> Agreement:
    """``full`` is the bill for keeping everything in ``contexts``, call by call."""
    theirs_each, ours_each, stubs = list[Usage](), list[Usage](), 0
    calls = (call for m in contexts for call in m.trajectory.calls)
    for call, usage in zip(calls, full.usages, strict=True):
        if call.recorded is None:
            continue
        stubs += 2 * call.recorded.output < call.output
        ours_each.append(usage)
        theirs_each.append(replace(call.recorded, output=usage.output))
    if not theirs_each:
        return _totals(trace, full, tariff)
    recorded, modelled = add_up(theirs_each), add_up(ours_each)
    # A record that tells no cached tokens cannot be compared with a bill for cached ones.
    if _tells_caching(trace):
        ours, theirs = tariff.prices.cost(modelled), tariff.prices.cost(recorded)
        difference = ours / theirs - 1 if theirs else 0.0
        why = _why(scale, recorded, modelled, misses, tariff)
        compared: Literal["cost", "prompt tokens"] = "cost"
    else:
        ours, theirs = 0.0, 0.0
        difference = _prompt(modelled) / max(_prompt(recorded), 1) - 1
        why, compared = _size_reason(scale, difference), "prompt tokens"
    agrees = abs(difference) <= TOLERANCE and not scale.unfit
    why = scale.unfit or why
    return Agreement(
        compared, recorded, modelled, theirs, ours, difference, agrees, "" if agrees else why, stubs
    )


def _totals(trace: Trace, full: Bill, tariff: Tariff) -> Agreement:
    modelled = full.usage
    why = "the file records no usage"
    recorded, difference = Usage(), None
    if trace.totals:
        recorded = Usage(uncached=trace.totals[0], output=trace.totals[1])
        difference = _prompt(modelled) / trace.totals[0] - 1
        why = "only sums are recorded, and they calibrate the model"
    return Agreement("nothing", recorded, modelled, 0.0, 0.0, difference, False, why, 0)


def _tells_caching(trace: Trace) -> bool:
    steps = (step for context in trace.contexts for step in context.steps)
    return any(step.recorded.caching for step in steps if step.recorded)


def _prompt(usage: Usage) -> int:
    return usage.uncached + usage.cached


def _why(
    scale: Scale, recorded: Usage, modelled: Usage, misses: Sequence[Miss], tariff: Tariff
) -> str:
    """The larger of two terms: other prompt sizes, or another share of them read from the cache."""
    prices = tariff.prices
    size = prices.write * (_prompt(modelled) - _prompt(recorded))
    fewer = modelled.cached - recorded.cached
    if abs(size) >= abs((prices.write - prices.read) * fewer):
        return _size_reason(scale, _prompt(modelled) / max(_prompt(recorded), 1) - 1)
    if fewer > 0:
        table = by_cause(misses)
        causes = ", ".join(f"{int(row['misses'])} by {cause}" for cause, row in table.items())
        found = f"; misses found: {causes}" if causes else ""
        return f"the provider read {fewer:,} tokens fewer from its cache than it could have{found}"
    return (
        f"the provider read {-fewer:,} tokens more from its cache than this conversation left there"
        " (a longer life time, or a prefix shared with others)"
    )


def _size_reason(scale: Scale, difference: float) -> str:
    if scale.unfit:
        return scale.unfit
    sign = "larger" if difference > 0 else "smaller"
    worst = f"; the worst single prompt is off by {scale.worst:.0%}" if scale.worst else ""
    return f"modelled prompts are {abs(difference):.0%} {sign} than the recorded ones{worst}"
