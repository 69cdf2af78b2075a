"""What each rule of a policy is worth, without running a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from akv_rsi.errors import OpError, PolicyError
from akv_rsi.insight.causes import Setting
from akv_rsi.policies.rules import Rule, rules_of, without
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.tasks.replay import Replay, replay_cost
from akv_rsi.types import Trajectory


@dataclass(frozen=True, slots=True)
class Ablated:
    """A policy without ``rule`` (whole if None) on recorded actions.

    ``ratio`` is its cost against keeping everything; ``lost`` counts words that the recorded agent
    wrote and could no longer have seen, ``beyond`` calls past the reliable span. ``error`` says why
    a policy without that rule does not run.
    """

    rule: Rule | None
    ratio: float = 0.0
    lost: int = 0
    beyond: int = 0
    error: str = ""


def ablate(
    spec: PolicySpec, full: PolicySpec, recorded: Sequence[Trajectory], setting: Setting
) -> list[Ablated]:
    """The policy, and the policy without each of its rules, on ``recorded`` conversations."""
    base = sum(replay.cost for replay in _replays(full, recorded, setting))
    rows = [_row(spec, None, base, recorded, setting)]
    for rule in rules_of(spec.source) if spec.kind == "program" else ():
        less = replace(spec, source=without(spec.source, rule))
        rows.append(_row(less, rule, base, recorded, setting))
    return rows


def _row(
    spec: PolicySpec,
    rule: Rule | None,
    base: float,
    recorded: Sequence[Trajectory],
    setting: Setting,
) -> Ablated:
    try:
        replays = _replays(spec, recorded, setting)
    except (PolicyError, OpError) as error:
        return Ablated(rule, error=f"{type(error).__name__}: {error}")
    cost = sum(replay.cost for replay in replays)
    return Ablated(rule, cost / base, sum(r.lost for r in replays), sum(r.beyond for r in replays))


def _replays(spec: PolicySpec, recorded: Sequence[Trajectory], setting: Setting) -> list[Replay]:
    return replay_cost(spec, recorded, setting.prices, setting.reliable_span, setting.budget)
