"""The audit of one trace: its make-up, its cost, what it lost, and what policies would save.

Everything here is a pure function of a `Trace` and an `AuditConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from akv_rsi.policies.spec import PolicySpec
from akv_rsi.tasks.cost import PRESETS
from akv_rsi.tasks.traces.agreement import Agreement, compare
from akv_rsi.tasks.traces.calibrate import Scale, calibrate
from akv_rsi.tasks.traces.misses import Miss, find_misses
from akv_rsi.tasks.traces.mix import Share, by_kind, by_tool
from akv_rsi.tasks.traces.model import Modelled, model
from akv_rsi.tasks.traces.policy_costs import (
    PolicyCost,
    affordable,
    bill_context,
    policy_costs,
)
from akv_rsi.tasks.traces.provider import RULES, Bill, Tariff, asked_of
from akv_rsi.tasks.traces.refetch import Refetched, find_refetched
from akv_rsi.tasks.traces.replays import Replayer, Setting
from akv_rsi.tasks.traces.trace import Trace
from akv_rsi.types import Usage

# Points of a growth curve: enough for a plot.
CURVE = 200
# These traces say nothing about policies: a harness or a compaction spoke, not an agent.
NOT_FOR_POLICIES = ("injected_user_nudges", "compaction_call")


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """How to audit.

    ``policies`` are replayed, by name, on as many calls of each trace as ``work`` allows: the sum
    over calls of the segments they have; on at most ``sample`` traces, 0 for all (see `Sampled`).
    ``span`` and ``summary`` are those of `Setting`.
    """

    tariff: Tariff = field(default_factory=lambda: Tariff(PRESETS["claude"], RULES["claude"]))
    policies: Mapping[str, PolicySpec] = field(default_factory=dict)
    span: int = 48_000
    summary: int = 1000
    work: int = 100_000
    sample: int = 300

    @property
    def setting(self) -> Setting:
        """What policies are told."""
        return Setting(self.tariff.prices, self.span, self.summary)


@dataclass(frozen=True, slots=True)
class Priced:
    """Keeping everything under one price preset. ``cost`` is in the preset's unit."""

    prices: str
    cost: float
    kv_read_share: float
    usage: Usage


@dataclass(frozen=True, slots=True)
class TraceAudit:
    """Everything that is known of one trace. Token counts are estimates unless recorded.

    ``tokens`` is the size of its text, every stretch once; ``longest`` its longest prompt.
    ``curve`` holds call numbers and prompt tokens. ``replayed`` counts the calls that the policies
    were replayed on.
    """

    id: str
    path: str
    format: str
    model: str | None
    calls: int
    contexts: int
    tool_calls: int
    tokens: int
    longest: int
    scale: Scale
    unit: str
    mix: tuple[Share, ...]
    tools: tuple[Share, ...]
    curve: tuple[tuple[int, int], ...]
    prices: tuple[Priced, ...]
    agreement: Agreement
    misses: tuple[Miss, ...]
    refetched: Refetched
    policies: tuple[PolicyCost, ...]
    replayed: int
    flags: tuple[str, ...]
    skipped: Mapping[str, tuple[int, int]]

    @property
    def full(self) -> Priced:
        """Keeping everything under the prices that were asked for."""
        return self.prices[0]

    @property
    def speaks_for_policies(self) -> bool:
        """Whether it belongs in statistics about policies."""
        return not any(flag in self.flags for flag in NOT_FOR_POLICIES)


class Sampled:
    """``audits`` of very many traces, with policies replayed on ``config.sample`` of them at most.

    How many there will be is not known. So every trace is replayed at first; whenever there are
    too many, every second replay is forgotten, and from then on half as many are made.
    """

    def __init__(self, config: AuditConfig, replayer: Replayer) -> None:
        self.audits: list[TraceAudit] = []
        self._config = config
        self._replayer = replayer
        self._stride, self._chosen = 1, 0

    def take(self, trace: Trace) -> None:
        """Audits one more trace."""
        chosen = self._config.work > 0 and len(self.audits) % self._stride == 0
        self.audits.append(audit_trace(trace, self._config, self._replayer if chosen else None))
        self._chosen += chosen
        if 0 < self._config.sample < self._chosen:
            self._thin()

    def _thin(self) -> None:
        first, self._stride = self._stride, 2 * self._stride
        for number in range(first, len(self.audits), self._stride):
            self.audits[number] = replace(self.audits[number], policies=(), replayed=0)
        self._chosen = -(-len(self.audits) // self._stride)


def audit_trace(trace: Trace, config: AuditConfig, replayer: Replayer | None) -> TraceAudit:
    """Audits one trace; ``replayer`` holds ``config.policies`` open, None replays nothing."""
    scale = calibrate(trace)
    contexts = model(trace, scale)
    tariff = asked_of(config.tariff, trace)
    full = _full(contexts, tariff)
    misses = find_misses(trace, tariff)
    mix = by_kind(contexts, trace)
    chosen = affordable(contexts, config.work) if replayer else []
    rows = policy_costs(chosen, config.policies, replayer, tariff) if replayer and chosen else []
    return TraceAudit(
        id=trace.id,
        path=trace.path,
        format=trace.format,
        model=trace.model,
        calls=trace.calls,
        contexts=len(contexts),
        tool_calls=sum(step.calls for context in trace.contexts for step in context.steps),
        tokens=sum(share.tokens for share in mix),
        longest=max((c.prompt for m in contexts for c in m.trajectory.calls), default=0),
        scale=scale,
        unit=trace.unit,
        mix=mix,
        tools=by_tool(contexts, trace),
        curve=_curve(contexts),
        prices=_prices(contexts, tariff, full),
        agreement=compare(trace, scale, contexts, full, misses, tariff),
        misses=tuple(misses),
        refetched=find_refetched(trace, scale),
        policies=tuple(rows),
        replayed=sum(len(context.times) for context in chosen),
        flags=tuple(sorted(trace.flags)),
        skipped={why: (c.count, c.size) for why, c in sorted(trace.skipped.items())},
    )


def _full(contexts: Sequence[Modelled], tariff: Tariff) -> Bill:
    """The bill for keeping everything."""
    usages: list[Usage] = []
    kept = 0.0
    for context in contexts:
        billed = bill_context(context, context.trajectory.calls, tariff)
        usages.extend(billed.usages)
        kept += billed.kept
    return Bill(tuple(usages), kept)


def _prices(contexts: Sequence[Modelled], tariff: Tariff, full: Bill) -> tuple[Priced, ...]:
    """The prices that were asked for, and then the other presets."""
    others = [Tariff(p, RULES[n]) for n, p in PRESETS.items() if n != tariff.prices.name]
    bills = [(tariff, full), *((other, _full(contexts, other)) for other in others)]
    return tuple(_priced(t, billed) for t, billed in bills)


def _priced(tariff: Tariff, billed: Bill) -> Priced:
    usage, cost = billed.usage, billed.cost(tariff)
    reads = tariff.prices.read * usage.cached
    return Priced(tariff.prices.name, cost, reads / cost if cost else 0.0, usage)


def _curve(contexts: Sequence[Modelled]) -> tuple[tuple[int, int], ...]:
    prompts = [call.prompt for context in contexts for call in context.trajectory.calls]
    step = max(1, -(-len(prompts) // CURVE))
    chosen = [*range(0, len(prompts), step)]
    if prompts and chosen[-1] != len(prompts) - 1:
        chosen.append(len(prompts) - 1)
    return tuple((number, prompts[number]) for number in chosen)
