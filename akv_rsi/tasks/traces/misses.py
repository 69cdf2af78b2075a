"""Cache misses that the records show: what was cached, was not read again, and what that cost.

A call should read from the cache what the call before sent. Where its recorded reads fall short of
that, the text was prefilled a second time. The cause is what the file shows: a compaction or an
edit of the text (also the provider's own: reasoning of an earlier turn is taken out of the prompt
when the user speaks again), a pause longer than the cache lives, or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from akv_rsi.tasks.traces.events import Recorded
from akv_rsi.tasks.traces.provider import Tariff
from akv_rsi.tasks.traces.trace import Context, Step, Trace

Cause = Literal["compaction", "edit", "idle gap", "unknown collapse"]
CAUSES: tuple[Cause, ...] = ("compaction", "edit", "idle gap", "unknown collapse")
# Less than this is block rounding and small change.
FEWEST_TOKENS, SMALLEST_SHARE = 1024, 0.05
MANY_CALLS = 5


@dataclass(frozen=True, slots=True)
class Miss:
    """One miss, at call number ``call`` of the trace.

    Its ``lost`` tokens cost ``cost`` more than if they had been read. ``idle`` is the time since
    the call before, in seconds. ``hint`` is what else was seen there.
    """

    call: int
    cause: Cause
    lost: int
    cost: float
    idle: float | None = None
    hint: str = ""


def find_misses(trace: Trace, tariff: Tariff) -> list[Miss]:
    """The misses of a trace, in order; none where the file does not tell cached tokens."""
    return [*_misses(trace, tariff)]


def _misses(trace: Trace, tariff: Tariff) -> Iterator[Miss]:
    surcharge = max(0.0, tariff.prices.write - tariff.prices.read)
    before: Step | None = None
    number = 0
    for context in trace.contexts:
        for position, step in enumerate(context.steps):
            if before is not None:
                lost = _lost(before.recorded, step.recorded)
                if lost:
                    found = _cause(context, position, before, step, tariff.rules.ttl)
                    yield Miss(number, found.cause, lost, lost * surcharge, found.idle, found.hint)
            before = step
            number += 1


def _lost(before: Recorded | None, now: Recorded | None) -> int:
    """Tokens the call before left in the cache that this one did not read; 0 if too few."""
    if before is None or now is None or not (before.caching and now.caching):
        return 0
    held = min(_prompt(before), _prompt(now))
    lost = held - now.usage.cached
    return lost if lost >= max(FEWEST_TOKENS, SMALLEST_SHARE * held) else 0


def _prompt(record: Recorded) -> int:
    return record.usage.uncached + record.usage.cached


class _Found(NamedTuple):
    cause: Cause
    idle: float | None
    hint: str = ""


def _cause(context: Context, position: int, before: Step, step: Step, ttl: float) -> _Found:
    idle = None if step.time is None or before.time is None else step.time - before.time
    if position == 0:
        is_compaction = context.cause == "compaction"
        return _Found("compaction" if is_compaction else "edit", idle, context.cause)
    if idle is not None and idle > (before.ttl or ttl):
        return _Found("idle gap", idle)
    if _user_spoke(context, before, step) and _reasoned(context, before):
        return _Found("edit", idle, "earlier reasoning is dropped when the user speaks")
    was, now = (_prompt(s.recorded) for s in (before, step) if s.recorded)
    if was - now >= max(FEWEST_TOKENS, SMALLEST_SHARE * was):
        return _Found("edit", idle, "the prompt became shorter")
    many = f"after {before.calls} parallel calls" if before.calls >= MANY_CALLS else ""
    return _Found("unknown collapse", idle, many)


def _user_spoke(context: Context, before: Step, step: Step) -> bool:
    return any(piece.kind == "user" for piece in context.pieces[before.end : step.prompt])


def _reasoned(context: Context, before: Step) -> bool:
    return any(piece.kind == "reasoning" for piece in context.pieces[: before.end])


def by_cause(misses: Sequence[Miss]) -> dict[str, dict[str, float]]:
    """Per cause: how many misses, lost tokens, and cost."""
    table: dict[str, dict[str, float]] = {}
    for cause in CAUSES:
        own = [miss for miss in misses if miss.cause == cause]
        if own:
            lost, cost = sum(m.lost for m in own), sum(m.cost for m in own)
            table[cause] = {"misses": len(own), "lost": lost, "cost": cost}
    return table
