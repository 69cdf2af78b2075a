"""What each policy would have cost on a trace, and whether its edits of the text pay."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from akv_rsi.errors import AkvError
from akv_rsi.policies import library
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.tasks.traces.model import Modelled
from akv_rsi.tasks.traces.needs import needs_of
from akv_rsi.tasks.traces.provider import Bill, Tariff, bill
from akv_rsi.tasks.traces.replays import REQUEST_TOKENS, Edited, Replayer
from akv_rsi.types import Call
from akv_rsi.visibility import Applied


@dataclass(slots=True)
class PolicyCost:
    """One policy on one trace, or on the part of it that was replayed.

    ``on`` tells where it can be had: ``engine`` policies drop KV, which closed APIs do not offer;
    ``text`` policies edit the prompt, which works everywhere. ``ratio`` is against keeping
    everything in the same contexts. Of the replayed ``calls``, ``blind`` ones name something that
    the policy had taken away: the agent could not have written them. Of its ``edits`` of the text
    ``paid`` saved more reads in the calls that followed than they cost; ``needed`` is the median
    number of calls an edit needs for that, infinite if it makes nothing shorter. ``failed`` says
    why a policy could not be applied.
    """

    name: str
    on: str
    cost: float = 0.0
    full: float = 0.0
    reads: float = 0.0
    calls: int = 0
    blind: int = 0
    edits: int = 0
    paid: int = 0
    failed: str = ""
    _needed: list[float] = field(default_factory=list, repr=False)

    @property
    def ratio(self) -> float | None:
        """Its cost over that of keeping everything; None where nothing was replayed."""
        return self.cost / self.full if self.full and not self.failed else None

    @property
    def kv_read_share(self) -> float | None:
        """The share of its cost that pays for reading the cache."""
        return self.reads / self.cost if self.cost and not self.failed else None

    @property
    def needed(self) -> float | None:
        """Calls until an edit has paid for itself, as a median."""
        return median(self._needed) if self._needed else None

    @property
    def blind_share(self) -> float | None:
        """The share of calls that depend on something the policy had taken away."""
        return self.blind / self.calls if self.calls and not self.failed else None

    @property
    def breaks_even(self) -> bool | None:
        """False for a policy that changes the cost, but not for the better."""
        ratio = self.ratio
        return None if ratio is None else ratio < 1 or (ratio == 1 and not self.edits)

    def add(self, billed: Bill, full_cost: float, tariff: Tariff) -> None:
        """One more context."""
        self.cost += billed.cost(tariff)
        self.full += full_cost
        self.reads += tariff.prices.read * billed.usage.cached

    def judge(self, edit: Edited, calls_left: int, tariff: Tariff) -> None:
        """Counts an edit, and whether the ``calls_left``, its own included, pay for it."""
        need = calls_to_break_even(edit, tariff)
        self.edits += 1
        self.paid += need <= calls_left
        self._needed.append(need)


def calls_to_break_even(edit: Edited, tariff: Tariff) -> float:
    """How many calls must read the shorter text until the edit has paid for itself."""
    prices = tariff.prices
    again = edit.rewritten - (0 if prices.caches_output else edit.answer)
    price = max(0, again) * max(0.0, prices.write - prices.read)
    if edit.summary:
        prompt, output = edit.summary
        price += prompt * prices.read + REQUEST_TOKENS * prices.input + output * prices.output
    saved = edit.removed * prices.read
    return price / saved if saved > 0 else math.inf


def work_of(contexts: Sequence[Modelled]) -> int:
    """What replaying a policy on ``contexts`` takes: the segments there are, summed over calls."""
    total = 0
    for context in contexts:
        ends = [segment.end for segment in context.trajectory.segments]
        total += sum(bisect_right(ends, call.prompt) for call in context.trajectory.calls)
    return total


def affordable(contexts: Sequence[Modelled], work: int) -> list[Modelled]:
    """The first contexts that ``work`` suffices for, the last one cut after a call if need be."""
    chosen: list[Modelled] = []
    for context in contexts:
        segments, at = context.trajectory.segments, 0
        for number, call in enumerate(context.trajectory.calls):
            while at < len(segments) and segments[at].end <= call.prompt:
                at += 1
            work -= at
            if work < 0:
                return [*chosen, context.first(number)] if number else chosen
        chosen.append(context)
    return chosen


def policy_costs(
    contexts: Sequence[Modelled],
    specs: Mapping[str, PolicySpec],
    replayer: Replayer,
    tariff: Tariff,
) -> list[PolicyCost]:
    """Every policy of ``specs``, which ``replayer`` holds open, on ``contexts``."""
    table = [PolicyCost(name, _where(s)) for name, s in specs.items()]
    for context in contexts:
        needs = needs_of(context)
        full_cost = bill_context(context, context.trajectory.calls, tariff).cost(tariff)
        for row, replayed in zip(table, replayer.run(context), strict=True):
            if isinstance(replayed, AkvError):
                row.failed = row.failed or str(replayed)
                continue
            billed = bill_context(context, replayed.calls, tariff, replayed.seen)
            row.add(billed, full_cost, tariff)
            row.calls += len(context.times)
            row.blind += replayed.blind(needs)
            for edit in replayed.edits:
                row.judge(edit, len(context.times) - edit.call, tariff)
    return table


def _where(spec: PolicySpec) -> str:
    if spec.source == library.spec("full").source:
        return "any"
    return "text" if spec.kind == "editor" else "engine"


def bill_context(
    context: Modelled, calls: Sequence[Call], tariff: Tariff, seen: Sequence[Applied] = ()
) -> Bill:
    """``calls`` in place of the recorded ones of ``context``, at their times."""
    return bill(calls, tariff, context.times, context.extra, context.warm, context.since, seen)
