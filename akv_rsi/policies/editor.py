"""Text-editing policies: what most agent harnesses do today, as baselines.

They rewrite the prompt itself, so everything behind the first edited token is prefilled again. Each
waits until an edit saves enough to be worth that (hysteresis); none edits at every turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from akv_rsi.policies.ranges import intersect, merge
from akv_rsi.policies.resident import current_turn_start
from akv_rsi.types import Range, Segment, Snapshot


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of the text, by segment ids, for good.

    What is in ``remove`` vanishes. What is in ``summarise`` is replaced, where it began, by one
    assistant segment that the agent writes when asked: an auxiliary call, which is charged.
    """

    remove: tuple[int, ...] = ()
    summarise: tuple[int, ...] = ()


class Editor(Protocol):
    """Decides, before each LLM call, whether to edit the text: a function of the snapshot alone."""

    @property
    def name(self) -> str:
        """The name it has in the library."""
        ...

    def edit(self, snapshot: Snapshot) -> Edit | None:
        """The edit to make before this call, or None to leave the text alone."""
        ...


def editable(snapshot: Snapshot) -> list[Segment]:
    """The segments an edit may touch, oldest first: neither pinned nor of the current turn."""
    end = current_turn_start(snapshot)
    return [s for s in snapshot.segments if not s.pinned and s.end <= end]


def age(segment: Segment, snapshot: Snapshot) -> int:
    """Calls since the segment's own; 0 for the current turn, as in the DSL."""
    return max(0, snapshot.turn - 1 - segment.turn)


def total(segments: Iterable[Segment]) -> int:
    """Tokens in all of them."""
    return sum(segment.tokens for segment in segments)


def attended(snapshot: Snapshot) -> int:
    """Tokens the next call attends to if the text stays as it is."""
    state = snapshot.visibility
    return total(snapshot.segments) - state.length + state.attended


def with_dropped(edit: Edit, snapshot: Snapshot) -> Edit:
    """``edit``, which also removes what is dropped: ops behind its first token are undone."""
    rest = [s for s in editable(snapshot) if s.id not in (*edit.remove, *edit.summarise)]
    dropped = [s.id for s in rest if not visible([s], snapshot)]
    return replace(edit, remove=tuple(sorted((*edit.remove, *dropped))))


def visible(segments: Iterable[Segment], snapshot: Snapshot) -> list[Range]:
    """What of them is computed and visible."""
    ranges = merge((segment.start, segment.end) for segment in segments)
    return intersect(ranges, merge(snapshot.visibility.visible_ranges))
