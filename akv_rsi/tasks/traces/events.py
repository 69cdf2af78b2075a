"""What a reader says about a transcript, in the order of the file.

A reader turns one format into these events and knows nothing else; `assemble` makes conversations
of them. So a reader needs no state beyond what its format's quirks ask for.
"""

from __future__ import annotations

from dataclasses import dataclass

from akv_rsi.types import SegmentKind, Usage


@dataclass(frozen=True, slots=True)
class Began:
    """What follows belongs to the conversation ``id``, a new one unless it is still open.

    ``beside`` leaves the others open: sub-agents are interleaved with their parent. Otherwise the
    conversations before it are complete.
    """

    id: str
    beside: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """One stretch of text in the prompt, or of a model's output.

    ``id`` names a tool call, or the call that a result answers; without one a result answers the
    last call. ``args`` are a call's arguments as the model wrote them. ``resent`` is false for
    reasoning that is stored but never comes back in a prompt; ``encrypted`` says that the text is
    only a stand-in for reasoning whose size the usage tells. ``images`` counts pictures beside the
    text. ``origin`` names it for a later `Reset` that forgets only some.
    """

    kind: SegmentKind
    text: str
    id: str | None = None
    tool: str | None = None
    args: str | None = None
    is_error: bool = False
    resent: bool = True
    encrypted: bool = False
    images: int = 0
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """The usage that a file records for one LLM call.

    ``caching`` tells whether the file says how much came from a cache; else all input counts as
    uncached. ``reasoning`` is the part of the output that was reasoning, where it is told.
    """

    usage: Usage
    caching: bool = True
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """An LLM call: what was said before is its prompt; agent text up to the next one its output.

    Repeating the last ``id`` continues that call (streamed blocks), with its latest usage. ``time``
    is in seconds since 1970. ``ttl`` is the life time of the cache it asked for, in seconds.
    """

    id: str | None = None
    recorded: Recorded | None = None
    time: float | None = None
    model: str | None = None
    ttl: float | None = None


@dataclass(frozen=True, slots=True)
class Amended:
    """Something about call number ``call`` (from 0) that the file tells only later."""

    call: int
    recorded: Recorded | None = None
    unsent: str = ""


@dataclass(frozen=True, slots=True)
class Reset:
    """The context was rewritten: what is ``forgotten`` is in no later prompt.

    ``forgotten`` names origins; None means everything but the system prompt and the tools.
    ``summary`` stands where the first forgotten text stood.
    """

    cause: str
    forgotten: frozenset[str] | None = None
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Totals:
    """Usage that is recorded for the conversation as a whole only: input and output tokens."""

    input: int
    output: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something in the file that is no part of the conversation, and why; ``size`` characters."""

    why: str
    size: int = 0
    count: int = 1


@dataclass(frozen=True, slots=True)
class Noted:
    """A property of the conversation that its reader must know, such as ``demonstration``."""

    flag: str


Event = Began | Said | Asked | Amended | Reset | Totals | Skipped | Noted
