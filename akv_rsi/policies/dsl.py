"""What a policy file imports: the context it sees and the verbs it has. See ``docs/policies.md``.

The sandbox loads this very file, so that a policy means the same there and in plain Python. It is
therefore written in the Python the sandbox runs: no inheritance, decorators, properties, ``yield``.
"""

from __future__ import annotations

from contextvars import ContextVar

from akv_rsi.policies.tunables import tunable
from akv_rsi.types import SegmentKind

__all__ = [
    "Context",
    "Segment",
    "Span",
    "drop",
    "identifiers",
    "keep",
    "overlap",
    "refresh",
    "repos",
    "restore",
    "tunable",
]


class Segment:
    """One message of the conversation, or a part of one. Read only.

    ``seg[a:b]`` is a stretch of its tokens, for the verbs.

    Attributes:
        id: Its number; later segments have larger ones.
        kind: system, tools, user, reasoning, assistant, tool_call or tool_result.
        turn: The LLM call it belongs to; a tool result belongs to the call that asked for it.
        age: Calls since that one; 0 for the current turn (the last action and what came after).
        tokens: Its length in tokens: header, content, end marker and separator.
        tool: The tool that answered, if it is a tool result.
        text: Its text.
        is_error: The tool reported an error.
        ephemeral: It was marked as of passing interest.
        pinned: It can never be dropped.
        superseded_by: The id of the first later tool result of the same tool with the same
            arguments, unless that one is an error and this one is not; None if there is none.
        mentions: Ids of the earlier segments whose identifiers it restates, ascending: those that
            introduced (held first) one of its identifiers that is still rare, which means that at
            most four earlier segments hold it.
        mentioned_later: How many later segments written by the agent (reasoning, assistant,
            tool_call) mention it.
        attention: Share of attention mass that recent decode turns gave it.
        dropped: None of it is visible any more.
    """

    __slots__ = (
        "_identifiers", "_notes", "_start", "age", "attention", "dropped", "ephemeral", "id",
        "is_error", "kind", "mentioned_later", "mentions", "pinned", "superseded_by", "text",
        "tokens", "tool", "turn",
    )  # fmt: skip

    def __init__(
        self,
        id: int,  # noqa: A002  # the field's name
        kind: SegmentKind,
        turn: int,
        start: int,
        tokens: int,
        tool: str | None,
        text: str,
        is_error: bool,
        ephemeral: bool,
        pinned: bool,
        mentions: tuple[int, ...],
        identifiers: tuple[str, ...],
    ) -> None:
        self.id = id
        self.kind = kind
        self.turn = turn
        self.tokens = tokens
        self.tool = tool
        self.text = text
        self.is_error = is_error
        self.ephemeral = ephemeral
        self.pinned = pinned
        self.mentions = mentions
        self.age = 0
        self.superseded_by: int | None = None
        self.mentioned_later = 0
        self.attention = 0.0
        self.dropped = False
        self._start = start
        self._identifiers = identifiers
        self._notes: list[Segment] = []

    def __getitem__(self, part: slice) -> Span:
        """The tokens ``[a, b)`` of it, counted from its first token, as slices of a list are."""
        if part.step is not None and part.step != 1:
            raise ValueError("a stretch of a segment has no step")
        low = _clip(part.start, 0, self.tokens)
        high = _clip(part.stop, self.tokens, self.tokens)
        return Span(self, self._start + low, self._start + high)


class Span:
    """Some consecutive tokens of one segment: what the verbs act on."""

    __slots__ = ("_end", "_segment", "_start")

    def __init__(self, segment: Segment, start: int, end: int) -> None:
        self._segment = segment
        self._start = start
        self._end = end


class Context:
    """What a policy may know before an LLM call. Read only; verbs change none of it.

    Attributes:
        turn: Index of the LLM call about to be made.
        tokens: Length of the conversation, dropped tokens included.
        attended: Tokens the call would attend to if nothing more were dropped.
        position_span: The position its next token would take.
        reliable_span: Positions up to which the model is reliable.
        cost_so_far: What the conversation has cost, in the price model's unit.
        budget: The allowed share of the cost of keeping everything.
        segments: All segments, oldest first; dropped ones too.
    """

    __slots__ = (
        "_by_id",
        "_protected",
        "attended",
        "budget",
        "cost_so_far",
        "position_span",
        "reliable_span",
        "segments",
        "tokens",
        "turn",
    )

    def __init__(self) -> None:
        self.turn = 0
        self.tokens = 0
        self.attended = 0
        self.position_span = 0
        self.reliable_span = 0
        self.cost_so_far = 0.0
        self.budget = 1.0
        self.segments: tuple[Segment, ...] = ()
        self._by_id: dict[int, Segment] = {}
        self._protected = 0

    def notes_about(self, segment: Segment) -> list[Segment]:
        """What the agent wrote about ``segment`` (reasoning, assistant) and is still visible.

        That is its text right after the segment, up to the end of the next call, and any later text
        that mentions the segment.
        """
        return [note for note in segment._notes if not note.dropped]


class Decision:
    """What a policy has asked for: ``(verb, start, end)`` in order, in logical tokens."""

    __slots__ = ("asked", "protected")

    def __init__(self, protected: int) -> None:
        self.protected = protected
        self.asked: list[tuple[str, int, int]] = []


_decision: ContextVar[Decision] = ContextVar("akv_rsi_decision")


def drop(part: Segment | Span) -> None:
    """Hides ``part`` from every later query. No effect on what is dropped already.

    The current turn and pinned segments cannot be dropped: trying is an error.
    """
    span, decision = _span(part), _decision.get()
    segment = span._segment
    if span._start < span._end:
        if segment.pinned:
            raise ValueError(f"drop of the pinned segment {segment.id} ({segment.kind})")
        if span._end > decision.protected:
            raise ValueError(f"drop of the current turn (segment {segment.id}, {segment.kind})")
    decision.asked.append(("drop", span._start, span._end))


def keep(part: Segment | Span) -> None:
    """Cancels every drop of ``part`` in this decision, asked for before or after."""
    span = _span(part)
    _decision.get().asked.append(("keep", span._start, span._end))


def restore(part: Segment | Span) -> None:
    """Makes ``part`` visible again. No effect on what is visible.

    What was dropped before an earlier `repos` has lost its place: restoring it needs a `repos` in
    the same decision. The last of a drop and a restore of the same tokens holds.
    """
    span = _span(part)
    _decision.get().asked.append(("restore", span._start, span._end))


def refresh(part: Segment | Span) -> None:
    """Recomputes ``part`` without what was dropped. Free if nothing it read has changed.

    What is not visible, or not computed yet, is left out.
    """
    span = _span(part)
    _decision.get().asked.append(("refresh", span._start, span._end))


def repos() -> None:
    """Closes the gaps: visible tokens get the positions 0, 1, 2 and so on."""
    _decision.get().asked.append(("repos", 0, 0))


def identifiers(segment: Segment) -> tuple[str, ...]:
    """The words and numbers in its text that can identify something: distinct, lower case, sorted.

    A word counts from three characters on, a number from two; ``src/app.py`` and ``max_depth`` are
    one word each.
    """
    return segment._identifiers


def overlap(first: Segment, second: Segment) -> float:
    """The share of the identifiers of ``first`` that ``second`` holds too; 0.0 if it has none."""
    own = first._identifiers
    return len(set(own) & set(second._identifiers)) / len(own) if own else 0.0


def _span(part: Segment | Span) -> Span:
    return part if isinstance(part, Span) else part[:]


def _clip(bound: int | None, default: int, tokens: int) -> int:
    if bound is None:
        return default
    return max(0, min(tokens, bound + tokens if bound < 0 else bound))
