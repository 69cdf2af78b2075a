"""A conversation as its file tells it: text measured in characters, before any calibration.

A trace is a sequence of contexts. Within a context the text only grows; a compaction, or any other
rewriting that the file tells of, begins a new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from akv_rsi.tasks.traces.events import Recorded
from akv_rsi.types import SegmentKind


@dataclass(slots=True)
class Piece:
    """One stretch of a context. ``size`` is in characters, or in tokens of a given tokenizer.

    ``fixed`` tokens come on top: images, and reasoning whose size only the usage tells. ``turn``,
    ``tool`` and ``call`` are those of `Segment`. ``text`` is cut, and empty where no policy will
    look at it. ``digest`` tells equal texts, whole. ``copied`` pieces were kept from the context
    before.
    """

    kind: SegmentKind
    turn: int
    size: int
    fixed: int = 0
    text: str = ""
    tool: str | None = None
    call: str | None = None
    is_error: bool = False
    ephemeral: bool = False
    digest: int = 0
    origin: str | None = None
    pinned: bool = False
    encrypted: bool = False
    copied: bool = False


@dataclass(slots=True)
class Step:
    """One LLM call: its prompt is ``pieces[:prompt]``, its answer ``pieces[prompt:end]``.

    ``unsent`` is the size of what it wrote that never comes back. ``calls`` counts tool calls.
    """

    id: str | None
    prompt: int
    end: int
    recorded: Recorded | None = None
    time: float | None = None
    ttl: float | None = None
    unsent: int = 0
    calls: int = 0


@dataclass(slots=True)
class Context:
    """Text that only grows, and the calls on it.

    ``cause`` says why it began. Its first ``kept`` pieces began the context before it, too.
    """

    cause: str
    pieces: list[Piece] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    kept: int = 0


@dataclass(slots=True)
class Count:
    """How often something was met, and how many characters it had."""

    count: int = 0
    size: int = 0


@dataclass(slots=True)
class Trace:
    """One conversation of one file.

    ``totals`` are the recorded input and output tokens where only their sums are known. ``skipped``
    tells what of the file is no part of the conversation; ``flags`` what to know about it.
    ``unit`` is what sizes count: ``char`` or ``token``.
    """

    id: str
    path: str
    format: str
    contexts: list[Context] = field(default_factory=list)
    totals: tuple[int, int] | None = None
    model: str | None = None
    skipped: dict[str, Count] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)
    unit: str = "char"

    @property
    def calls(self) -> int:
        """LLM calls in all."""
        return sum(len(context.steps) for context in self.contexts)


def merge_counts(into: dict[str, Count], more: Mapping[str, Count]) -> None:
    """Adds the counts in ``more`` to ``into``."""
    for why, other in more.items():
        own = into.setdefault(why, Count())
        own.count, own.size = own.count + other.count, own.size + other.size


def bundled(pieces: Sequence[Piece]) -> list[Piece]:
    """One piece for all that differ in size and text only, in the order of the first of each.

    Sizes stay, and so does what a later `Reset` can forget; texts and turns are gone.
    """
    table: dict[tuple[object, ...], Piece] = {}
    for piece in pieces:
        key = (piece.kind, piece.tool, piece.origin, piece.encrypted, piece.copied)
        own = table.get(key)
        if own is None:
            own = Piece(piece.kind, 0, 0, tool=piece.tool, origin=piece.origin)
            own.encrypted, own.copied = piece.encrypted, piece.copied
            table[key] = own
        own.size, own.fixed = own.size + piece.size, own.fixed + piece.fixed
    return [*table.values()]
