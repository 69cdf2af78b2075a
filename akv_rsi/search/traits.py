"""What a policy can tell a segment by, and how much reading each kind of segment cost.

The fields are the DSL's own, computed by the DSL's own runtime, so that what is learned from them
can be said in a policy.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from contextvars import copy_context
from dataclasses import dataclass

from akv_rsi.policies.dsl import Context
from akv_rsi.policies.dsl import Segment as Seen
from akv_rsi.policies.executor import Limits
from akv_rsi.policies.resident import Resident
from akv_rsi.policies.runtime import Meter, Runtime
from akv_rsi.policies.vocabulary import ALL_NEEDS
from akv_rsi.types import Snapshot

# Ages and sizes are rounded down to one of these: what is learned must not hang on one token.
STEPS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
MOST_MENTIONS = 3


@dataclass(frozen=True, slots=True)
class Traits:
    """The fields of a segment at some turn; ``noted`` means that visible text is about it."""

    kind: str
    tool: str
    age: int
    tokens: int
    is_error: bool
    ephemeral: bool
    superseded: bool
    mentioned: int
    noted: bool

    @property
    def rounded(self) -> Traits:
        """The same with its numbers on a coarse scale."""
        age, tokens = (STEPS[bisect_right(STEPS, n) - 1] for n in (self.age, self.tokens))
        mentioned = min(self.mentioned, MOST_MENTIONS)
        flags = (self.is_error, self.ephemeral, self.superseded)
        return Traits(self.kind, self.tool, age, tokens, *flags, mentioned, self.noted)


@dataclass(frozen=True, slots=True)
class Sample:
    """Segments alike: whether the call saw them, whether any call still ``needed`` them.

    ``weight`` are their tokens, once for each call.
    """

    traits: Traits
    hidden: bool
    needed: bool
    weight: int


class Observer:
    """Tells the traits of one growing conversation, call by call."""

    def __init__(self) -> None:
        self._contexts: list[Context] = []
        self._runtime = Runtime(self._contexts.append, Meter(Limits().steps))
        self._resident = Resident(ALL_NEEDS)

    def traits(self, snapshot: Snapshot) -> dict[int, Traits]:
        """The traits of each segment that a policy could drop now, by its id."""
        self._runtime.apply(self._resident.update(snapshot))
        self._contexts.clear()
        copy_context().run(self._runtime.decide, snapshot.conversation)
        (context,) = self._contexts
        droppable = (s for s in context.segments if s.age > 0 and not s.pinned)
        return {segment.id: _traits(context, segment) for segment in droppable}


def _traits(context: Context, segment: Seen) -> Traits:
    return Traits(
        kind=segment.kind,
        tool=segment.tool or "",
        age=segment.age,
        tokens=segment.tokens,
        is_error=segment.is_error,
        ephemeral=segment.ephemeral,
        superseded=segment.superseded_by is not None,
        mentioned=segment.mentioned_later,
        noted=bool(context.notes_about(segment)),
    )


def add_up(samples: Iterable[Sample]) -> tuple[Sample, ...]:
    """Samples of the same rounded traits and fate made one, the heaviest first."""
    weights: Counter[tuple[Traits, bool, bool]] = Counter()
    for sample in samples:
        weights[sample.traits.rounded, sample.hidden, sample.needed] += sample.weight
    ordered = sorted(weights.items(), key=lambda item: (-item[1], str(item[0])))
    return tuple(Sample(*key, weight) for key, weight in ordered)
