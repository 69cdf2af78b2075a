"""What recorded actions depend on: evidence, without a model, of what a policy must not take away.

An agent that names a path, a number or a name in a tool call has read it somewhere. A call depends
on the earlier stretches that hold such an identifier; when a policy has taken all of them away, the
agent could not have written that call. Words of prose are no evidence, and neither is what many
stretches hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from akv_rsi.policies.resident import AGENT_KINDS, RARE, identifiers_of
from akv_rsi.tasks.traces.model import Modelled
from akv_rsi.types import Segment, SegmentKind

_SHORTEST = 4
_MARKS = frozenset("._/:\\-0123456789")
_CALLS: frozenset[SegmentKind] = frozenset({"tool_call"})
# Shorter results are alike by chance: "ok", an empty list.
SHORTEST_RESULT = 200
# Per call: for each identifier it names, the ids of the earlier segments that hold it.
Needs = tuple[tuple[frozenset[int], ...], ...]


def needs_of(context: Modelled) -> Needs:
    """What the tool calls of each call of ``context`` depend on."""
    return tuple(_needs(context, _CALLS))


def evidence_of(context: Modelled) -> Needs:
    """All that tells that earlier content was still wanted.

    What a call mentions, in its text as in its tool calls; and, where it fetches what an earlier
    call had fetched with the same result, that result.
    """
    mentions = _needs(context, AGENT_KINDS)
    return tuple((*m, *r) for m, r in zip(mentions, _rereads(context), strict=True))


def _rereads(context: Modelled) -> list[list[frozenset[int]]]:
    found: list[list[frozenset[int]]] = [[] for _ in context.trajectory.calls]
    held: dict[tuple[str | None, str | None, str], frozenset[int]] = {}
    for segment in context.trajectory.segments:
        if segment.kind != "tool_result" or len(segment.text) < SHORTEST_RESULT:
            continue
        key = (segment.tool, segment.call, segment.text)
        if key in held:
            found[segment.turn].append(held[key])
        held[key] = held.get(key, frozenset()) | {segment.id}
    return found


def unmet(needs: Sequence[frozenset[int]], gone: frozenset[int]) -> bool:
    """Whether a call names something of which every holder is ``gone``."""
    return any(holders <= gone for holders in needs)


def _needs(context: Modelled, kinds: Collection[str]) -> Iterator[tuple[frozenset[int], ...]]:
    holders: dict[str, list[int]] = {}
    segments, at = context.trajectory.segments, 0
    for call in context.trajectory.calls:
        while at < len(segments) and segments[at].end <= call.prompt:
            for word in _telling(segments[at]):
                held = holders.setdefault(word, [])
                if len(held) <= RARE:
                    held.append(segments[at].id)
            at += 1
        named: set[frozenset[int]] = set()
        for segment in segments[at:]:
            if segment.end > call.prompt + call.output:
                break
            if segment.kind in kinds:
                known = (holders.get(word, ()) for word in _telling(segment))
                named.update(frozenset(held) for held in known if 0 < len(held) <= RARE)
        yield tuple(sorted(named, key=sorted))


def _telling(segment: Segment) -> Iterator[str]:
    """The identifiers in a segment that look like one, not like prose."""
    for word in identifiers_of(segment.text):
        if len(word) >= _SHORTEST and not _MARKS.isdisjoint(word):
            yield word
