"""The vocabulary every layer shares: ops, transcripts, usage, policies. Frozen, and free of torch.

Token offsets are logical: token ``i`` is the ``i``-th token ever appended, whatever was dropped
since. Ranges are half-open. An op's *boundary* ``b`` places it after tokens ``[0, b)`` are computed
and before token ``b`` is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from akv_rsi.errors import OpError

if TYPE_CHECKING:
    from akv_rsi.visibility import Visibility

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Drop:
    """From boundary ``boundary`` on, no query sees the tokens in ``ranges``."""

    rank: ClassVar[int] = 0
    boundary: int
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Restore:
    """Dropped tokens in ``ranges`` are visible again to queries from ``boundary`` on."""

    rank: ClassVar[int] = 1
    boundary: int
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Repos:
    """Visible tokens take positions ``0..m-1`` in logical order; the next token takes ``m``."""

    rank: ClassVar[int] = 2
    boundary: int


@dataclass(frozen=True, slots=True)
class Refresh:
    """The KV of visible tokens in ``ranges`` is recomputed from what is visible at ``boundary``."""

    rank: ClassVar[int] = 3
    boundary: int
    ranges: tuple[Range, ...]


Op = Drop | Restore | Repos | Refresh


def _check_ranges(op: Drop | Restore | Refresh) -> None:
    if not op.ranges:
        raise OpError(f"{type(op).__name__} at {op.boundary} has no ranges")
    last = 0
    for start, end in op.ranges:
        if start < 0 or end <= start:
            raise OpError(f"{op}: range [{start}, {end}) is empty, reversed or negative")
        if end > op.boundary:
            raise OpError(f"{op}: range [{start}, {end}) ends past its boundary {op.boundary}")
        if start < last:
            raise OpError(f"{op}: range [{start}, {end}) overlaps or precedes the one before it")
        last = end


@dataclass(frozen=True, slots=True)
class OpHistory:
    """The cumulative ops of a sequence, ordered by boundary, then Drop, Restore, Repos, Refresh.

    Only the form is checked here (order, well-formed ranges, at most one op of a kind at a
    boundary); whether an op makes sense after those before it is `Visibility.apply`'s business.

    >>> OpHistory((Drop(8, ((2, 4),)), Repos(8))).boundaries
    (8,)
    """

    ops: tuple[Op, ...] = ()

    def __post_init__(self) -> None:
        previous = (-1, -1)
        for op in self.ops:
            key = (op.boundary, op.rank)
            if op.boundary < 0 or key <= previous:
                raise OpError(f"{op} is out of order: ops go by boundary, then by kind")
            if not isinstance(op, Repos):
                _check_ranges(op)
            previous = key

    def __iter__(self) -> Iterator[Op]:
        return iter(self.ops)

    def __len__(self) -> int:
        return len(self.ops)

    @property
    def boundaries(self) -> tuple[int, ...]:
        """The distinct boundaries at which something happens, ascending."""
        return tuple(boundary for boundary, _ in self.groups())

    def groups(self) -> Iterator[tuple[int, tuple[Op, ...]]]:
        """The ops of each boundary together, in order."""
        for boundary, ops in groupby(self.ops, key=lambda op: op.boundary):
            yield boundary, tuple(ops)

    def upto(self, boundary: int) -> OpHistory:
        """The ops at boundaries ``<= boundary``: what version 0 of that token depends on."""
        return OpHistory(tuple(op for op in self.ops if op.boundary <= boundary))

    def extend(self, ops: Iterable[Op]) -> OpHistory:
        """This history with later ops behind it; `OpError` when they are out of order."""
        return OpHistory(self.ops + tuple(ops))


SegmentKind = Literal[
    "system", "tools", "user", "reasoning", "assistant", "tool_call", "tool_result"
]


@dataclass(frozen=True, slots=True)
class Segment:
    """One stretch of a conversation: a message, or a part of one. Segments tile the token sequence.

    ``[start, end)`` holds all of its tokens: role header, content, end marker and separator.
    ``turn`` is the index of the LLM call it belongs to: what precedes the first call is turn 0, a
    tool result belongs to the call that asked for it. ``call`` holds a tool result's arguments as
    the assistant wrote them. ``pinned`` segments can never be dropped.
    """

    id: int
    kind: SegmentKind
    turn: int
    start: int
    end: int
    text: str
    tool: str | None = None
    call: str | None = None
    is_error: bool = False
    ephemeral: bool = False
    pinned: bool = False

    @property
    def tokens(self) -> int:
        """Tokens in the segment."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one LLM call, or of several added up.

    ``uncached`` input tokens were computed for this call (new text, and ``refreshed`` survivors,
    which it includes); ``cached`` ones were read from the cache and attended to; ``written`` were
    added to the cache; ``output`` were sampled.
    """

    calls: int = 0
    uncached: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    refreshed: int = 0

    def __add__(self, other: Usage) -> Usage:
        names = [f.name for f in fields(Usage)]
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in names})


@dataclass(frozen=True, slots=True)
class Call:
    """One LLM call of a trajectory, as the cost model needs it. All counts are tokens.

    ``reused`` leading tokens of the prompt are, token for token, the previous call's prompt and
    output: all of them in an append-only conversation, fewer after an edit of the text. ``ops``
    happen at boundary ``reused`` before the prompt's remaining tokens are computed. ``auxiliary``
    calls (a summariser's) have a prompt of their own: they leave the agent's cache alone.
    """

    prompt: int
    reused: int
    output: int
    ops: tuple[Op, ...] = ()
    auxiliary: bool = False
    recorded: Usage | None = None


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A whole conversation: its segments, its LLM calls and where it came from."""

    id: str
    segments: tuple[Segment, ...]
    calls: tuple[Call, ...]
    source: str = ""

    @property
    def ops(self) -> OpHistory:
        """The cumulative ops of its calls."""
        return OpHistory(tuple(op for call in self.calls for op in call.ops))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All a policy may know before one LLM call. It holds the past only.

    ``segments`` end with the text that arrived since the last call; ``visibility.length`` tokens of
    them are computed, and ops happen at that boundary. ``conversation`` names the conversation:
    between two snapshots of the same name segments were only appended, so that a sandbox can keep
    them resident. ``attention`` maps segment ids to the share of attention mass that recent decode
    turns gave them, where the engine measured it.
    """

    conversation: str
    turn: int
    segments: tuple[Segment, ...]
    visibility: Visibility
    reliable_span: int
    budget: float = 1.0
    cost_so_far: float = 0.0
    attention: Mapping[int, float] | None = None

    @property
    def boundary(self) -> int:
        """The boundary at which this decision's ops happen."""
        return self.visibility.length


class Policy(Protocol):
    """Decides the ops before each LLM call: a pure function of the snapshot.

    ``capabilities`` lists what it needs of its target: verbs (``drop``, ``restore``, ``repos``,
    ``refresh``) and the snapshot fields only some targets have (``attention``).
    """

    @property
    def name(self) -> str:
        """What results call it."""
        ...

    @property
    def capabilities(self) -> frozenset[str]:
        """What it needs of its target."""
        ...

    def decide(self, snapshot: Snapshot) -> tuple[Op, ...]:
        """The ops at ``snapshot.boundary`` in canonical order; `PolicyError` if it is at fault."""
        ...
