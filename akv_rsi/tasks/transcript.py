"""The layout of a growing conversation, in counts: what a policy sees and what a call costs.

It needs no tokens, so the same class serves a conversation with a model (`Conversation`) and the
open-loop replay of a recorded one. Between two calls its text is the segments so far; the first
``boundary`` tokens of it are computed, the rest arrived since the last call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from akv_rsi.errors import GuardError, PolicyCrash
from akv_rsi.policies.editor import Edit
from akv_rsi.policies.ranges import merge, subtract
from akv_rsi.tasks.cost import PriceModel, cache_end, charge
from akv_rsi.tasks.environment import Message
from akv_rsi.types import (
    Call,
    Drop,
    Op,
    OpHistory,
    Range,
    Segment,
    SegmentKind,
    Snapshot,
    Trajectory,
    Usage,
)
from akv_rsi.visibility import Applied, Visibility

# Calls whose attention a policy is told of.
RECENT_CALLS = 3
_PINNED: frozenset[SegmentKind] = frozenset({"system", "tools", "user"})


class Transcript:
    """Segments, cache state, calls and cost of one conversation under one price model.

    A call is ``apply`` (the policy's ops) and then ``record``; an ``edit`` rewrites the text before
    it instead. ``segments[i].id`` is always ``i``. ``name`` tells conversations apart; a snapshot's
    name also counts edits, since segments are only appended under one name.

    ``pinned`` ranges may never be dropped: the opening's first message, whatever it is (attention
    sinks), and its system, tools and user messages. With ``attention``, snapshots tell for each
    segment the largest share of attention that one of the last calls gave it (see `attended`).
    """

    def __init__(
        self,
        name: str,
        prices: PriceModel,
        reliable_span: int,
        budget: float = 1.0,
        attention: bool = False,
    ) -> None:
        self.name = name
        self.reliable_span = reliable_span
        self.segments: list[Segment] = []
        self.calls: list[Call] = []
        self.seen: list[Applied] = []  # what each call sees, and what of it is refreshed
        self.history = OpHistory()
        self.pinned: tuple[Range, ...] = ()
        self.usage = Usage()
        self.turn = 0
        self.measures = attention
        self._shares: deque[dict[int, float]] = deque(maxlen=RECENT_CALLS)
        self._prices = prices
        self._budget = budget
        self._edits = 0
        self._applied = Applied(Visibility(), ())
        self._ops: tuple[Op, ...] = ()
        self._cache_end = 0

    @property
    def length(self) -> int:
        """Tokens of text."""
        return self.segments[-1].end if self.segments else 0

    @property
    def boundary(self) -> int:
        """Tokens computed so far: where the next call's ops happen."""
        return self._applied.visibility.length

    @property
    def visibility(self) -> Visibility:
        """What the next call sees: the ops are applied, and text that is new is appended."""
        state = self._applied.visibility
        return state.append(max(0, self.length - state.length))

    @property
    def cost(self) -> float:
        """The cost so far."""
        return self._prices.cost(self.usage)

    def open(self, messages: Sequence[Message], sizes: Sequence[int]) -> None:
        """The messages before the first call, with their sizes in tokens."""
        for message, size in zip(messages, sizes, strict=True):
            self.add(message, size, pinned=not self.segments or message.kind in _PINNED)

    def add(self, message: Message, size: int, pinned: bool = False) -> None:
        """``message`` behind the text; it belongs to the last call, the opening to the first."""
        self.append(
            Segment(
                id=len(self.segments),
                kind=message.kind,
                turn=max(self.turn - 1, 0),
                start=self.length,
                end=self.length + size,
                text=message.text,
                tool=message.tool,
                call=message.call,
                is_error=message.is_error,
                ephemeral=message.ephemeral,
                pinned=pinned,
            )
        )

    def append(self, segment: Segment) -> None:
        """``segment`` behind the text, renumbered and moved to fit."""
        number, start = len(self.segments), self.length
        if (segment.id, segment.start) != (number, start):
            segment = replace(segment, id=number, start=start, end=start + segment.tokens)
        self.segments.append(segment)
        if segment.pinned:
            self.pinned = (*self.pinned, (segment.start, segment.end))

    def snapshot(self) -> Snapshot:
        """What a policy may know before the next call."""
        return Snapshot(
            conversation=f"{self.name}~{self._edits}" if self._edits else self.name,
            turn=self.turn,
            segments=tuple(self.segments),
            visibility=self._applied.visibility,
            reliable_span=self.reliable_span,
            budget=self._budget,
            cost_so_far=self.cost,
            attention=self._attention() if self.measures else None,
        )

    def attended(self, shares: Sequence[float]) -> None:
        """The share of attention that the call to be recorded gave each segment."""
        self._shares.append(dict(enumerate(shares)))

    def apply(self, ops: tuple[Op, ...]) -> None:
        """The ops before the next call; `OpError` when they break the contract."""
        history = self.history.extend(ops)
        self._applied = self._applied.visibility.apply(ops, self.pinned)
        self._ops, self.history = ops, history

    def record(self, prompt: int, output: int) -> None:
        """The next call happened: ``prompt`` tokens in all, ``output`` sampled behind them."""
        call = Call(prompt, self.boundary, output, self._ops)
        self._charge(call, self._applied)
        self._cache_end = cache_end(call, self._prices)
        appended = self._applied.visibility.append(prompt + output - self.boundary)
        self._applied, self._ops = Applied(appended, ()), ()
        self.turn += 1

    def record_auxiliary(self, prompt: int, reused: int, output: int) -> None:
        """A call beside the conversation, over its first ``reused`` tokens and more of its own."""
        call = Call(prompt, min(reused, self.boundary), output, auxiliary=True)
        self._charge(call, Applied(self._applied.visibility, ()))

    def told(self, end: int) -> OpHistory:
        """The ops of an auxiliary call over the first ``end`` tokens: it reads what is visible now.

        What was dropped behind ``end`` is dropped at it, so that all before comes from the cache.
        """
        past = OpHistory(tuple(op for op in self.history if op.boundary < end))
        before = merge(Visibility.replay(end, past).visible_ranges)
        hidden = subtract(before, merge(self._applied.visibility.visible_ranges))
        return past.extend((Drop(end, tuple(hidden)),)) if hidden else past

    def check_edit(self, edit: Edit) -> None:
        """`GuardError` or `PolicyCrash` unless every segment the edit names may be edited."""
        if not edit.remove and not edit.summarise:
            raise PolicyCrash("the edit changes nothing: return None instead")
        for i in (*edit.remove, *edit.summarise):
            if not 0 <= i < len(self.segments):
                raise PolicyCrash(f"the edit names segment {i}, but there are {len(self.segments)}")
            segment = self.segments[i]
            if segment.pinned or segment.end > self.boundary:
                why = "is pinned" if segment.pinned else "belongs to the current turn"
                raise GuardError(f"the edit would remove segment {i} ({segment.kind}), which {why}")

    def edit(self, edit: Edit, summary: Message | None = None, size: int = 0) -> list[Range | None]:
        """Rewrites the text: what is removed vanishes, ``summary`` stands for what is summarised.

        Returns where each segment of the new text comes from: its range in the old text, or None
        for the summary, which is ``size`` tokens long. `rewind` must follow.
        """
        self.check_edit(edit)
        gone = {*edit.remove, *edit.summarise}
        place = min(edit.summarise) if summary is not None else -1
        old, self.segments, self.pinned = self.segments, [], ()
        origins: list[Range | None] = []
        for segment in old:
            if summary is not None and segment.id == place:
                self.add(summary, size)
                origins.append(None)
            if segment.id not in gone:
                self.append(segment)
                origins.append((segment.start, segment.end))
        self._edits += 1
        self._shares.clear()
        return origins

    def rewind(self, reused: int) -> None:
        """After an edit: of what was computed, the first ``reused`` tokens are still the text."""
        reused = min(reused, self.boundary)
        self.history = OpHistory(tuple(op for op in self.history if op.boundary <= reused))
        self._applied = Applied(Visibility.replay(reused, self.history), ())
        self._cache_end = min(self._cache_end, reused)

    def trajectory(self, source: str = "") -> Trajectory:
        """The conversation so far as data."""
        return Trajectory(self.name, tuple(self.segments), tuple(self.calls), source)

    def _attention(self) -> dict[int, float]:
        return {
            s.id: max((c.get(s.id, 0.0) for c in self._shares), default=0.0) for s in self.segments
        }

    def _charge(self, call: Call, applied: Applied) -> None:
        self.calls.append(call)
        self.seen.append(applied)
        self.usage += charge(call, self._cache_end, applied)
