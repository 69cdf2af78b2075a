"""Why a segment left the cache, and whether it was missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from akv_rsi.errors import PolicyError
from akv_rsi.insight.cachemap import CacheMap, Cell, State
from akv_rsi.policies.open import open_policy
from akv_rsi.policies.resident import AGENT_KINDS, RARE, identifiers_of
from akv_rsi.policies.rules import Rule, alone, rules_of
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.tasks.cost import PriceModel
from akv_rsi.types import Op, Repos, Segment


@dataclass(frozen=True, slots=True)
class Setting:
    """What a policy of a run was told besides the conversation."""

    prices: PriceModel
    reliable_span: int
    budget: float


@dataclass(frozen=True, slots=True)
class Need:
    """A later call that used a segment: the words it took from there.

    ``lost`` of them stood in nothing the call could see: it could not have known them.
    """

    turn: int
    words: tuple[str, ...]
    lost: tuple[str, ...]


Behind = Mapping[Rule, tuple[Op, ...]]


def rules_behind(spec: PolicySpec, shown: CacheMap, setting: Setting) -> list[Behind]:
    """Call by call what each rule asked for, found by asking each one alone.

    Untrusted policies are asked in the sandbox. `PolicyError` when the policy does not decide what
    was recorded, so that nothing can be said.
    """
    if spec.kind != "program":
        return [{} for _ in shown.turns]
    whole = _decide(spec, shown, setting)
    for turn, ops in zip(shown.turns, whole, strict=True):
        if turn.call.ops != ops:
            raise PolicyError(f"{spec.id} does not decide at call {turn.number} what was recorded")
    asked = {
        rule: _decide(replace(spec, source=alone(spec.source, rule)), shown, setting)
        for rule in rules_of(spec.source)
    }
    return [{rule: own[i] for rule, own in asked.items()} for i in range(len(whole))]


def _decide(spec: PolicySpec, shown: CacheMap, setting: Setting) -> list[tuple[Op, ...]]:
    told = (setting.prices, setting.reliable_span, setting.budget)
    with open_policy(spec) as policy:
        return [policy.decide(turn.snapshot(shown.trajectory.id, *told)) for turn in shown.turns]


def rules_for(behind: Behind, op: Op, segment: Segment) -> list[Rule]:
    """The rules that asked for what ``op`` does to ``segment``."""
    return [
        rule
        for rule, own in behind.items()
        if rule.verb == type(op).__name__.lower()
        and any(type(mine) is type(op) and covers(mine, segment) for mine in own)
    ]


def covers(op: Op, segment: Segment) -> bool:
    """Whether ``op`` touches ``segment``."""
    if isinstance(op, Repos):
        return False
    return any(start < segment.end and segment.start < end for start, end in op.ranges)


def later_needs(shown: CacheMap, column: int, turn: int) -> list[Need]:
    """The calls from ``turn`` on whose answer restates what only few segments held, this one too.

    It is evidence from the text alone: what an agent writes again it has read somewhere.
    """
    own = set(identifiers_of(shown.segments[column].text))
    holders: dict[str, list[int]] = {word: [] for word in own}
    needs = []
    for segment in shown.segments:
        said = own & set(identifiers_of(segment.text))
        used = segment.id > column and segment.kind in AGENT_KINDS and segment.turn >= turn
        if words := sorted(w for w in said if used and 0 < len(holders[w]) <= RARE):
            row = shown.cells[segment.turn] if segment.turn < len(shown.cells) else ()
            lost = [w for w in words if not any(_whole(shown, row, h) for h in holders[w])]
            needs.append(Need(segment.turn, tuple(words), tuple(lost)))
        for word in said:
            holders[word].append(segment.id)
    return needs


def _whole(shown: CacheMap, row: Sequence[Cell], column: int) -> bool:
    return column < len(row) and row[column].visible == shown.segments[column].tokens


def hindsight(shown: CacheMap, oracle: CacheMap | None, column: int) -> int | None:
    """Until which call hindsight kept the segment; the number of calls if to the end.

    None where hindsight went another way before that segment, or is not recorded.
    """
    if oracle is None or not oracle.cells or column >= len(oracle.segments):
        return None
    for ours, theirs in zip(shown.segments[: column + 1], oracle.segments, strict=False):
        if (ours.kind, ours.text) != (theirs.kind, theirs.text):
            return None
    for row, cells in enumerate(oracle.cells):
        if column < len(cells) and cells[column].state in (State.DROPPED, State.GONE):
            return row
    return len(oracle.cells)
