"""What a reader of an audit can act on, in plain sentences."""

from __future__ import annotations

from collections.abc import Sequence

from akv_rsi.tasks.traces.audit import TraceAudit
from akv_rsi.tasks.traces.overall import PolicyTotal, misses_of, policies_of

SCOPE = (
    "Closed APIs bill the whole cached prefix and cannot drop KV: for them only policies marked"
    " 'text' count. Figures of those marked 'engine' hold for engines that can drop"
    " (this one, AKV-SGLang)."
)
ESTIMATES = (
    "Tokens are estimates from characters, calibrated for each trace where usage is recorded."
    " Policies are costed on the recorded actions: whether an agent would still succeed is not"
    " known here."
)
# A policy that takes away what more than this share of calls use is no advice.
_BLIND, _WORTH_IT = 0.05, 0.99
_ADVICE = {
    "idle gap": "pauses outlived the cache: a longer life time, or a call in between, keeps it",
    "compaction": "compactions wrote the context anew: fewer of them, or smaller ones",
    "edit": "the prompt was changed in its middle: append instead, or edit rarely",
    "unknown collapse": "the cache lost prefixes that nobody changed: ask the provider why",
}


def advice(audits: Sequence[TraceAudit]) -> list[str]:
    """What can be acted on, the most valuable first."""
    cost = sum(audit.full.cost for audit in audits)
    found: list[tuple[float, str]] = []
    for cause, row in misses_of(audits).items():
        share = row["cost"] / cost if cost else 0.0
        count, lost = int(row["misses"]), int(row["lost"])
        often = "once" if count == 1 else f"{count} times"
        text = f"{_ADVICE[cause]} ({often}, {lost:,} tokens, {share:.1%} of the modelled cost)"
        found.append((share, text))
    repeated, results = (
        sum(getattr(a.refetched, k) for a in audits) for k in ("repeated", "results")
    )
    if results and repeated / results > 0.05:
        share = repeated / results
        found.append((share / 10, f"{share:.0%} of tool output came from calls made before"))
    totals = policies_of(audits)
    for on, where in (("text", "on any API"), ("engine", "on an engine that can drop KV")):
        found.append(_best(totals, on, where))
    return [text for _, text in sorted(found, key=lambda pair: -pair[0])]


def _best(totals: Sequence[PolicyTotal], on: str, where: str) -> tuple[float, str]:
    rows = [(t.ratio, t.name, t.blind_share or 0.0) for t in totals if t.on == on and t.ratio]
    if not rows:
        return 0.0, f"no policy was costed {where}"
    safe = [row for row in rows if row[2] <= _BLIND]
    if not safe or min(safe)[0] > _WORTH_IT:
        lost = " without losing what the agents used later" if min(rows)[0] < _WORTH_IT else ""
        return 0.0, f"{where}, no policy of those costed saves 1% on these traces{lost}"
    ratio, name, blind = min(safe)
    text = f"{where}, {name} would have cost {ratio:.2f} of keeping everything"
    return 1 - ratio, f"{text}; {blind:.1%} of calls use what it had taken away"
