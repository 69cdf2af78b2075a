"""Which lines of a policy's source asked for the ops it decided on.

Where a verb stands once, that is its line. Where it stands several times, each call is asked alone
(`alone`), before every call of the conversation, with what was visible there: what it asks for then
is its part. That takes as long as deciding again, so it is done when somebody looks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from akv_rsi.errors import PolicyError
from akv_rsi.policies.executor import Limits
from akv_rsi.policies.open import open_policy
from akv_rsi.policies.ranges import intersect
from akv_rsi.policies.rules import Rule, alone, rules_of
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.policies.wire import replay
from akv_rsi.types import Op, Range, Repos, Segment, Snapshot

Groups = Sequence[tuple[Op, ...]]


class Origin(NamedTuple):
    """A line that asked for an op, and for which of its ranges; a Repos has none."""

    line: int
    ranges: tuple[Range, ...]


def origins(
    spec: PolicySpec, limits: Limits, span: int, segments: Sequence[Segment], groups: Groups
) -> dict[Op, list[Origin]]:
    """By op of ``groups``, which were decided call by call, the lines it comes from."""
    rules = rules_of(spec.source)
    times = Counter(rule.verb for rule in rules)
    used = {_verb(op) for group in groups for op in group}
    found: dict[Op, list[Origin]] = {op: [] for group in groups for op in group}
    for rule in rules:
        if rule.verb not in used:
            continue
        once = times[rule.verb] == 1
        asked = groups if once else _asked(spec, limits, span, segments, groups, rule)
        for ops, own in zip(groups, asked, strict=True):
            for op in ops:
                if _verb(op) == rule.verb and (origin := _shared(op, own, rule.line)):
                    found[op].append(origin)
    return found


def _asked(
    spec: PolicySpec,
    limits: Limits,
    span: int,
    segments: Sequence[Segment],
    groups: Groups,
    rule: Rule,
) -> Groups:
    """What the policy decides before each call when ``rule`` is the only call of its verb."""
    decided: list[tuple[Op, ...]] = []
    with open_policy(replace(spec, source=alone(spec.source, rule)), limits) as policy:

        def decide(snapshot: Snapshot) -> tuple[Op, ...]:
            try:
                decided.append(policy.decide(snapshot))
            except PolicyError:  # as it did then, or for want of the other calls
                decided.append(())
            return groups[snapshot.turn]

        replay(decide, "origins", segments, span)
    return decided


def _shared(op: Op, own: Sequence[Op], line: int) -> Origin | None:
    """What ``own`` ops have of ``op``."""
    same = next((mine for mine in own if type(mine) is type(op)), None)
    if same is None or isinstance(op, Repos) or isinstance(same, Repos):
        return None if same is None else Origin(line, ())
    ranges = intersect(list(op.ranges), list(same.ranges))
    return Origin(line, tuple(ranges)) if ranges else None


def _verb(op: Op) -> str:
    return type(op).__name__.lower()
