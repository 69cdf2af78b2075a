"""What a policy does to a recorded conversation: the protocol, and the risk that needs no model.

A recorded agent had everything in sight. Whether it would have written the same under a policy
cannot be known without running it; an objective says how likely it is, call by call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from akv_rsi.tasks.traces.model import Modelled
from akv_rsi.tasks.traces.needs import Needs, evidence_of
from akv_rsi.tasks.traces.replays import Replayed
from akv_rsi.types import Segment, Usage


@dataclass(frozen=True, slots=True)
class Judged:
    """One context under a policy.

    ``kept`` is the sum over its calls of how well each is kept, 0 to 1; ``lost`` counts those that
    are not. ``refetched`` is what fetching lost content again would use.
    """

    kept: float
    lost: int
    refetched: Usage


class Objective(Protocol):
    """Judges what a policy did to recorded contexts. It must pickle, and may remember."""

    def judge(self, context: Modelled, replayed: Replayed, usages: Sequence[Usage]) -> Judged:
        """``usages`` are those of the replayed calls, auxiliary ones included."""
        ...


class Risk:
    """A call is lost when it uses what the policy had taken away: see `evidence_of`.

    The agent fetches lost tool results again, once each: one more call that reads the prompt,
    writes the old call anew and takes in the old result. Then it has them. Other text cannot be
    fetched.
    """

    def __init__(self) -> None:
        self._evidence: dict[str, Needs] = {}

    def judge(self, context: Modelled, replayed: Replayed, usages: Sequence[Usage]) -> Judged:
        """See `Objective`."""
        name = context.trajectory.id
        if name not in self._evidence:
            self._evidence[name] = evidence_of(context)
        own = (u for c, u in zip(replayed.calls, usages, strict=True) if not c.auxiliary)
        back, refetched, lost = set[int](), Usage(), 0
        for needs, gone, usage in zip(self._evidence[name], replayed.gone, own, strict=True):
            missing = [holders for holders in needs if holders <= gone - back]
            lost += bool(missing)
            again = {i for holders in missing if (i := _fetched(context, holders)) is not None}
            refetched += _refetch(context, again, usage)
            back |= again
        return Judged(len(replayed.gone) - lost, lost, refetched)


def _fetched(context: Modelled, holders: frozenset[int]) -> int | None:
    """Which of the segments that hold something the agent would fetch again: the last result."""
    segments = context.trajectory.segments
    return max((i for i in holders if segments[i].kind == "tool_result"), default=None)


def _refetch(context: Modelled, again: set[int], usage: Usage) -> Usage:
    """One more call, before the one with ``usage``, that fetches the segments ``again``."""
    if not again:
        return Usage()
    results: list[Segment] = [context.trajectory.segments[i] for i in again]
    calls = context.trajectory.calls
    written = sum(calls[turn].output for turn in {segment.turn for segment in results})
    fresh = sum(segment.tokens for segment in results) + written
    return Usage(1, fresh, usage.cached + usage.uncached, fresh, written)
