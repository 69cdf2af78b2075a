"""Many audits together: sums, distributions, and published claims computed again on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from akv_rsi.tasks.traces.audit import TraceAudit
from akv_rsi.tasks.traces.misses import CAUSES, by_cause
from akv_rsi.tasks.traces.mix import Share
from akv_rsi.tasks.traces.policy_costs import PolicyCost

# Shorter traces are no agents at work.
FEWEST_CALLS = 5
LENGTHS = ((5, 20), (20, 50), (50, 10**9))


@dataclass(frozen=True, slots=True)
class Distribution:
    """``n`` values by their quantiles."""

    n: int
    p10: float
    p25: float
    p50: float
    p75: float
    p90: float


@dataclass(frozen=True, slots=True)
class Claim:
    """A published figure, and what these traces say: over all, and by their number of calls."""

    name: str
    published: float
    source: str
    all: Distribution | None
    by_length: tuple[tuple[str, Distribution | None], ...]


@dataclass(frozen=True, slots=True)
class PolicyTotal:
    """One policy over all traces that speak for policies.

    ``ratio`` is of summed costs, ``spread`` the distribution over traces. ``failed`` counts traces
    on which it could not be applied; ``blind_share`` is that of `PolicyCost`.
    """

    name: str
    on: str
    ratio: float | None
    spread: Distribution | None
    kv_read_share: float | None
    blind_share: float | None
    traces: int
    edits: int
    paid: int
    failed: int

    @property
    def breaks_even(self) -> bool | None:
        """False for a policy that costs more than keeping everything, or the same with edits."""
        if self.ratio is None:
            return None
        return self.ratio < 1 or (self.ratio == 1 and not self.edits)


def distribution(values: Iterable[float]) -> Distribution | None:
    """The quantiles of ``values``; None of none."""
    array = np.array([*values], dtype=np.float64)
    if not array.size:
        return None
    marks = (float(q) for q in np.quantile(array, (0.1, 0.25, 0.5, 0.75, 0.9)))
    return Distribution(len(array), *marks)


def length_name(calls: int) -> str:
    """The class of a trace by its number of calls.

    >>> length_name(7), length_name(50)
    ('5-20 calls', '50+ calls')
    """
    for low, high in LENGTHS:
        if low <= calls < high:
            return f"{low}-{high} calls" if high < 10**9 else f"{low}+ calls"
    return f"under {LENGTHS[0][0]} calls"


def mix_of(audits: Sequence[TraceAudit]) -> list[Share]:
    """The make-up of all traces together."""
    table: dict[str, list[int]] = {}
    for audit in audits:
        for share in audit.mix:
            row = table.setdefault(share.name, [0, 0, 0])
            for at, value in enumerate((share.tokens, share.read, share.count)):
                row[at] += value
    shares = (Share(name, *row) for name, row in table.items())
    return sorted(shares, key=lambda share: (-share.tokens, share.name))


def misses_of(audits: Sequence[TraceAudit]) -> dict[str, dict[str, float]]:
    """Misses of all traces, by cause; ``share_of_writes`` is of the recorded cache writes."""
    table: dict[str, dict[str, float]] = {}
    written = sum(audit.agreement.recorded.written for audit in audits)
    for audit in audits:
        for cause, row in by_cause(audit.misses).items():
            total = table.setdefault(cause, dict.fromkeys(row, 0))
            for key, value in row.items():
                total[key] += value
    for row in table.values():
        row["share_of_writes"] = row["lost"] / written if written else 0.0
    return {cause: table[cause] for cause in CAUSES if cause in table}


def policies_of(audits: Sequence[TraceAudit]) -> list[PolicyTotal]:
    """Every policy over the traces that speak for policies and are long enough."""
    rows: dict[str, list[PolicyCost]] = {}
    for audit in _speaking(audits):
        for row in audit.policies:
            rows.setdefault(row.name, []).append(row)
    return [_total(own) for own in rows.values()]


def _total(rows: Sequence[PolicyCost]) -> PolicyTotal:
    good = [row for row in rows if row.ratio is not None]
    cost, full = sum(row.cost for row in good), sum(row.full for row in good)
    return PolicyTotal(
        name=rows[0].name,
        on=rows[0].on,
        ratio=cost / full if full else None,
        spread=distribution(row.ratio for row in good if row.ratio is not None),
        kv_read_share=sum(row.reads for row in good) / cost if cost else None,
        blind_share=_share(sum(r.blind for r in good), sum(r.calls for r in good)),
        traces=len(good),
        edits=sum(row.edits for row in good),
        paid=sum(row.paid for row in good),
        failed=sum(bool(row.failed) for row in rows),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _speaking(audits: Sequence[TraceAudit]) -> list[TraceAudit]:
    return [a for a in audits if a.speaks_for_policies and a.calls >= FEWEST_CALLS]


_PAPER, _OWN = "arXiv:2610.28577", "this project's first study"
_Value = Callable[[TraceAudit], float | None]


def _ratio_of(name: str) -> _Value:
    return lambda audit: next((row.ratio for row in audit.policies if row.name == name), None)


def _rewritten(audit: TraceAudit) -> float | None:
    written = audit.agreement.recorded.written
    return sum(miss.lost for miss in audit.misses) / written if written else None


def _density(audit: TraceAudit) -> float | None:
    fitted = audit.scale.source == "calls" and audit.unit == "char"
    return 4 * audit.scale.per_unit if fitted else None


_CLAIMS: tuple[tuple[str, float, str, _Value], ...] = (
    ("KV reads, share of cost", 0.824, _PAPER, lambda audit: audit.full.kv_read_share),
    ("rolling_drop (keep 12), cost ratio", 0.723, _PAPER, _ratio_of("rolling_drop")),
    ("rolling_drop:keep=3, cost ratio", 0.69, _OWN, _ratio_of("rolling_drop:keep=3")),
    ("trim:keep=3,batch=2, cost ratio", 1.85, _PAPER, _ratio_of("trim:keep=3,batch=2")),
    ("trim:keep=10,batch=2, cost ratio", 1.55, _OWN, _ratio_of("trim:keep=10,batch=2")),
    ("summarise, cost ratio", 0.93, _PAPER, _ratio_of("summarise")),
    ("cached and lost, share of cache writes", 0.58, _OWN, _rewritten),
    ("tokens per four characters", 1.25, _OWN, _density),
)
CLAIM_POLICIES = ("rolling_drop:keep=3", "trim:keep=3,batch=2", "trim:keep=10,batch=2")


def claims_of(audits: Sequence[TraceAudit]) -> list[Claim]:
    """Published figures beside their distributions on these traces."""
    own = _speaking(audits)
    return [
        _claim(name, published, source, value, own) for name, published, source, value in _CLAIMS
    ]


def _claim(
    name: str, published: float, source: str, value: _Value, audits: Sequence[TraceAudit]
) -> Claim:
    by_length = []
    for low, high in LENGTHS:
        inside = [value(audit) for audit in audits if low <= audit.calls < high]
        by_length.append((length_name(low), distribution(v for v in inside if v is not None)))
    every = distribution(v for v in map(value, audits) if v is not None)
    return Claim(name, published, source, every, tuple(by_length))
