"""An audit as plain data: what `--json` prints and the page is drawn from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any

from akv_rsi.tasks.traces.advice import ESTIMATES, SCOPE, advice
from akv_rsi.tasks.traces.audit import AuditConfig, Priced, TraceAudit
from akv_rsi.tasks.traces.misses import by_cause
from akv_rsi.tasks.traces.overall import (
    claims_of,
    misses_of,
    mix_of,
    policies_of,
)
from akv_rsi.tasks.traces.policy_costs import PolicyCost
from akv_rsi.tasks.traces.read import FileReport
from akv_rsi.tasks.traces.redact import cut, mask, redact

MOST_REPEATS, MOST_MISSES = 10, 50


@dataclass(frozen=True, slots=True)
class Report:
    """All audits of one command, the files they came from and how they were made."""

    audits: Sequence[TraceAudit]
    files: Sequence[FileReport]
    config: AuditConfig
    redacted: bool = False

    def to_json(self) -> dict[str, Any]:
        """Everything as plain data, without keys or passwords, and finite."""
        about = {
            "prices": self.config.tariff.prices.name,
            "span": self.config.span,
            "summary_tokens": self.config.summary,
            "policies": list(self.config.policies),
            "notes": [SCOPE, ESTIMATES, *self._sampled()],
            "advice": advice(self.audits),
        }
        body = {
            "files": [self._file(file) for file in self.files],
            "overall": self._overall(),
        }
        clean: dict[str, Any] = _clean(about | body)
        # One by one: of many traces there are never two copies.
        return clean | {"traces": [_clean(self._trace(audit)) for audit in self.audits]}

    def _sampled(self) -> list[str]:
        """That policies were replayed on a sample of the conversations, where they were."""
        config, every = self.config, len(self.audits)
        if not (config.work and config.policies and 0 < config.sample < every):
            return []
        replayed = sum(audit.replayed > 0 for audit in self.audits)
        return [
            f"Policies were replayed on {replayed:,} of {every:,} conversations, spread evenly over"
            " them: --sample 0 replays them on all."
        ]

    def _overall(self) -> dict[str, Any]:
        audits = self.audits
        compared = [a.agreement for a in audits if a.agreement.compared != "nothing"]
        return {
            "traces": len(audits),
            "calls": sum(audit.calls for audit in audits),
            "tokens": sum(audit.tokens for audit in audits),
            "mix": [asdict(share) for share in mix_of(audits)],
            "prices": self._prices(),
            "agreement": {"compared": len(compared), "agree": sum(a.agrees for a in compared)},
            "misses": misses_of(audits),
            "refetched": {
                key: sum(getattr(audit.refetched, key) for audit in audits)
                for key in ("results", "repeated", "identical", "copies", "after_reset")
            },
            "policies": [asdict(t) | {"breaks_even": t.breaks_even} for t in policies_of(audits)],
            "claims": [asdict(claim) for claim in claims_of(audits)],
        }

    def _prices(self) -> list[dict[str, Any]]:
        rows: dict[str, list[Priced]] = {}
        for audit in self.audits:
            for priced in audit.prices:
                rows.setdefault(priced.prices, []).append(priced)
        table = []
        for name, own in rows.items():
            cost = sum(priced.cost for priced in own)
            reads = sum(priced.cost * priced.kv_read_share for priced in own)
            share = reads / cost if cost else 0.0
            table.append({"prices": name, "cost": cost, "kv_read_share": share})
        return table

    def _file(self, file: FileReport) -> dict[str, Any]:
        plain = asdict(file) | {"path": self._name(file.path)}
        plain["problems"] = [{"line": line, "why": why} for line, why in file.problems]
        return plain

    def _trace(self, audit: TraceAudit) -> dict[str, Any]:
        return _shallow(audit) | {
            "id": self._name(audit.id),
            "path": self._name(audit.path),
            "misses": by_cause(audit.misses),
            "largest_misses": [*sorted(audit.misses, key=lambda m: -m.lost)[:MOST_MISSES]],
            "policies": [_policy(row) for row in audit.policies],
            "skipped": [
                {"why": why, "count": count, "size": size}
                for why, (count, size) in audit.skipped.items()
            ],
            "refetched": _shallow(audit.refetched)
            | {
                "repeats": [
                    _shallow(repeat) | {"call": self._text(repeat.call)}
                    for repeat in audit.refetched.repeats[:MOST_REPEATS]
                ]
            },
        }

    def _text(self, text: str) -> str:
        """What a transcript says, fit to be shown: keys are looked for before it is cut."""
        return redact(text) if self.redacted else cut(mask(text), 120)

    def _name(self, name: str) -> str:
        return redact(name) if self.redacted and name else name


def _policy(row: PolicyCost) -> dict[str, Any]:
    names = (
        "name",
        "on",
        "ratio",
        "kv_read_share",
        "blind_share",
        "breaks_even",
        "edits",
        "paid",
        "needed",
    )
    return {name: getattr(row, name) for name in (*names, "failed")}


def _shallow(record: Any) -> dict[str, Any]:
    """The fields of a dataclass, as they are."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _clean(value: Any) -> Any:
    """``value`` as plain data with masked texts; numbers that JSON lacks become None."""
    if is_dataclass(value):
        value = _shallow(value)
    if isinstance(value, str):
        return _masked(value)
    if isinstance(value, dict):
        return {_masked(str(key)): _clean(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


# Most of a report's texts are the same few names.
_masked = lru_cache(maxsize=1 << 12)(mask)
