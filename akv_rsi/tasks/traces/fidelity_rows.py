"""Fidelity of policies over many conversations: a row for each, with what hurt most."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from akv_rsi.errors import AkvError
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.tasks import stats
from akv_rsi.tasks.traces.fidelity import CallScore, Fidelity, Hurt
from akv_rsi.tasks.traces.policy_costs import bill_context
from akv_rsi.tasks.traces.provider import Tariff
from akv_rsi.tasks.traces.redact import cut
from akv_rsi.tasks.traces.replays import Replayed, Replayer, Setting
from akv_rsi.tasks.traces.scripts import Script

MOST_LISTED = 5


@dataclass(slots=True)
class FidelityRow:
    """One policy. ``failed`` says why it could not be applied to a conversation."""

    name: str
    failed: str = ""
    _scores: list[tuple[str, list[CallScore]]] = field(default_factory=list)
    _costs: list[tuple[float, float]] = field(default_factory=list)
    _hurts: list[tuple[str, Hurt]] = field(default_factory=list)
    _gone: int = 0
    _tokens: int = 0

    def add(
        self, script: Script, scores: list[CallScore], hurts: list[Hurt], costs: tuple[float, float]
    ) -> None:
        """One conversation; ``costs`` are the policy's and keep-everything's."""
        name = script.context.trajectory.id
        self._scores.append((name, scores))
        self._hurts += [(name, hurt) for hurt in hurts]
        self._costs.append(costs)

    def took(self, script: Script, replayed: Replayed) -> None:
        """What the policy had taken away of a conversation in the end, in whole segments."""
        segments = script.context.trajectory.segments
        self._gone += sum(segments[i].tokens for i in replayed.gone[-1])
        self._tokens += len(script.tokens)

    def to_json(self, show: Callable[[str], str] = str) -> dict[str, Any]:
        """The row as plain data; ``show`` makes text of a transcript fit to be shown.

        Intervals resample conversations. Gaps are nats; negative ones are losses.
        """
        calls = [(name, i, s) for name, row in self._scores for i, s in enumerate(row) if s.tokens]
        if self.failed or not calls:
            return {"policy": self.name, "failed": self.failed or "the agent wrote nothing"}
        rows = [[s for s in row if s.tokens] for _, row in self._scores]
        gaps = [sum(s.policy - s.full for s in row) for row in rows if row]
        worst = sorted(calls, key=lambda call: call[2].policy - call[2].full)[:MOST_LISTED]
        hurts = sorted(self._hurts, key=lambda pair: -pair[1].nats)[:MOST_LISTED]
        policy, full = (sum(cost[k] for cost in self._costs) for k in (0, 1))
        return {
            "policy": self.name,
            "failed": "",
            "conversations": len(gaps),
            "calls": len(calls),
            "tokens": sum(s.tokens for _, _, s in calls),
            "gap_per_token": _ratio(gaps, [sum(s.tokens for s in row) for row in rows if row]),
            "gap_per_call": _ratio(gaps, [len(row) for row in rows if row]),
            "kept": sum(s.kept for _, _, s in calls) / len(calls),
            "cost_ratio": policy / full if full else 1.0,
            "gone_share": self._gone / self._tokens,
            "worst_calls": [
                {
                    "conversation": show(name),
                    "call": i,
                    "gap": s.policy - s.full,
                    "tokens": s.tokens,
                }
                for name, i, s in worst
            ],
            "hurt_most": [_hurt(name, hurt, show) for name, hurt in hurts],
        }


def _ratio(gaps: list[float], counts: list[int]) -> dict[str, float]:
    return stats.ratio(gaps, counts)._asdict()


def _hurt(name: str, hurt: Hurt, show: Callable[[str], str]) -> dict[str, Any]:
    segment = hurt.segment
    return {
        "conversation": show(name),
        "nats": hurt.nats,
        "call": hurt.call,
        "kind": segment.kind,
        "turn": segment.turn,
        "tool": segment.tool,
        "tokens": segment.tokens,
        # Shown first and cut then: half a key is not known as one.
        "text": cut(" ".join(show(cut(segment.text, 2000)).split()), 80),
    }


def fidelity_rows(
    scripts: Iterable[Script],
    specs: Mapping[str, PolicySpec],
    fidelity: Fidelity,
    tariff: Tariff,
    setting: Setting,
    spans: int,
) -> list[FidelityRow]:
    """Every policy on every script; of each conversation ``spans`` lost segments are given back."""
    table = [FidelityRow(name) for name in specs]
    with Replayer(list(specs.values()), setting) as replayer:
        for script in scripts:
            context = script.context
            full = bill_context(context, context.trajectory.calls, tariff).cost(tariff)
            for row, replayed in zip(table, replayer.run(context), strict=True):
                if isinstance(replayed, AkvError):
                    row.failed = row.failed or str(replayed)
                    continue
                cost = bill_context(context, replayed.calls, tariff).cost(tariff)
                hurts = fidelity.hurts(script, replayed, spans) if spans else []
                row.add(script, fidelity.calls(script, replayed), hurts, (cost, full))
                row.took(script, replayed)
    return table
