"""What a runtime knows of a conversation, and what it must be told before the next decision.

All fields a policy sees are computed here, incrementally, and sent as plain data: a decision costs
what is new in the conversation, not its length times the number of fields.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache

from akv_rsi.policies.ranges import merge
from akv_rsi.types import Segment, SegmentKind, Snapshot

# (verb, start, end) in the order the policy asked.
Asked = list[tuple[str, int, int]]
# The arguments of `dsl.Segment`.
Row = tuple[
    int,
    SegmentKind,
    int,
    int,
    int,
    str | None,
    str,
    bool,
    bool,
    bool,
    tuple[int, ...],
    tuple[str, ...],
]
# turn, protected, tokens, attended, position_span, reliable_span, cost_so_far, budget
Numbers = tuple[int, int, int, int, int, int, float, float]
# conversation, afresh, new segments, superseded (id, by), dropped (id, whether),
# attention (id, share), the context's numbers
Delta = tuple[
    str,
    bool,
    list[Row],
    list[tuple[int, int]],
    list[tuple[int, bool]],
    list[tuple[int, float]],
    Numbers,
]

# An identifier that more earlier segments than this hold says nothing about where it came from.
RARE = 4
# Measured in the sandbox, rounded up.
_SEGMENT_BYTES, _WORD_BYTES = 2500, 80
AGENT_KINDS = frozenset({"reasoning", "assistant", "tool_call"})
_WORD = re.compile(r"[a-z0-9]+(?:[_./:\\-]+[a-z0-9]+)*")


@lru_cache(maxsize=4096)
def identifiers_of(text: str) -> tuple[str, ...]:
    """The distinct words and numbers of ``text`` that can identify something, sorted.

    >>> identifiers_of("open src/App.py at 42: max_depth = 7")
    ('42', 'max_depth', 'open', 'src/app.py')
    """
    words = set(_WORD.findall(text.lower()))
    return tuple(sorted(word for word in words if len(word) >= (2 if word.isdigit() else 3)))


class Origins:
    """Which segment introduced each identifier of a conversation, and how many hold it."""

    def __init__(self) -> None:
        self._origin: dict[str, int] = {}
        self._holders: dict[str, int] = {}

    def add(self, number: int, words: tuple[str, ...]) -> tuple[int, ...]:
        """Adds segment ``number``, which holds ``words``; the ids it mentions, ascending."""
        mentioned = set()
        for word in words:
            holders = self._holders.get(word, 0)
            self._holders[word] = holders + 1
            if holders == 0:
                self._origin[word] = number
            elif holders <= RARE:
                mentioned.add(self._origin[word])
        return tuple(sorted(mentioned))


class Resident:
    """One conversation as a runtime has it; ``needs`` is what the policy uses (`needs_of`)."""

    def __init__(self, needs: frozenset[str]) -> None:
        self._needs = needs
        self._segments: tuple[Segment, ...] = ()
        self._origins = Origins()
        self._answers: dict[tuple[str, str], Segment] = {}
        self._dropped: set[int] = set()
        self._attention: dict[int, float] = {}
        self.size = 0
        """About how many bytes it takes in the runtime."""

    def is_prefix_of(self, snapshot: Snapshot) -> bool:
        """Whether ``snapshot`` only appends to what is known."""
        return snapshot.segments[: len(self._segments)] == self._segments

    def update(self, snapshot: Snapshot) -> Delta:
        """What is new in ``snapshot``, which must append to what is known."""
        afresh = not self._segments
        new = snapshot.segments[len(self._segments) :]
        self._segments = snapshot.segments
        rows = [self._row(segment) for segment in new]
        superseded = [pair for segment in new for pair in self._supersede(segment)]
        numbers = _numbers(snapshot)
        return (
            snapshot.conversation,
            afresh,
            rows,
            superseded,
            self._dropped_changes(snapshot),
            self._attention_changes(snapshot),
            numbers,
        )

    def _row(self, segment: Segment) -> Row:
        linked = bool(self._needs & {"mentions", "mentioned_later", "notes_about"})
        compared = bool(self._needs & {"identifiers", "overlap"})
        words = identifiers_of(segment.text) if linked or compared else ()
        text = segment.text if "text" in self._needs else ""
        self.size += _SEGMENT_BYTES + 2 * len(text) + _WORD_BYTES * len(words)
        return (
            segment.id,
            segment.kind,
            segment.turn,
            segment.start,
            segment.tokens,
            segment.tool,
            text,
            segment.is_error,
            segment.ephemeral,
            segment.pinned,
            self._origins.add(segment.id, words) if linked else (),
            words if compared else (),
        )

    def _supersede(self, segment: Segment) -> Iterator[tuple[int, int]]:
        """The earlier answer to the same call, if ``segment`` supersedes it, with its own id."""
        if segment.kind != "tool_result" or segment.tool is None or segment.call is None:
            return
        call = (segment.tool, segment.call)
        earlier = self._answers.get(call)
        if earlier is not None and segment.is_error and not earlier.is_error:
            return  # a failed look at something is no newer look at it
        self._answers[call] = segment
        if earlier is not None:
            yield earlier.id, segment.id

    def _dropped_changes(self, snapshot: Snapshot) -> list[tuple[int, bool]]:
        now = _dropped(snapshot)
        changed = sorted(now ^ self._dropped)
        self._dropped = now
        return [(number, number in now) for number in changed]

    def _attention_changes(self, snapshot: Snapshot) -> list[tuple[int, float]]:
        if "attention" not in self._needs or snapshot.attention is None:
            return []
        now = {s.id: float(snapshot.attention.get(s.id, 0.0)) for s in snapshot.segments}
        changed = [(i, share) for i, share in now.items() if share != self._attention.get(i, 0.0)]
        self._attention = now
        return changed


def current_turn_start(snapshot: Snapshot) -> int:
    """Where the current turn begins, in logical tokens: with the last action, if there was one."""
    start = snapshot.boundary
    for segment in reversed(snapshot.segments):
        if segment.turn < snapshot.turn - 1:
            break
        if segment.kind in AGENT_KINDS:
            start = min(start, segment.start)
    return start if snapshot.turn else 0


def _numbers(snapshot: Snapshot) -> Numbers:
    state = snapshot.visibility
    tokens = snapshot.segments[-1].end if snapshot.segments else 0
    new = tokens - state.length
    return (
        snapshot.turn,
        current_turn_start(snapshot),
        tokens,
        state.attended + new,
        state.next_position + new,
        snapshot.reliable_span,
        snapshot.cost_so_far,
        snapshot.budget,
    )


def _dropped(snapshot: Snapshot) -> set[int]:
    """Ids of the segments of which nothing is visible."""
    segments, out = snapshot.segments, set[int]()
    starts = [segment.start for segment in segments]
    for start, end in merge((r.start, r.end) for r in snapshot.visibility.runs if not r.visible):
        at = bisect_left(starts, start)
        while at < len(segments) and segments[at].end <= end:
            out.add(segments[at].id)
            at += 1
    return out
