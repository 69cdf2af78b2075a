"""One conversation in the making: order, links between calls and results, sizes, limits.

What a format leaves open is decided here, once. All blocks of one response come before the results
of its tool calls, however the file interleaves them. A result belongs to the call that asked for
it; results without a call, and calls without a result, are counted. Within an opening, the system
prompt and the tools come first. Lone surrogates are replaced, and counted.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from akv_rsi.tasks.traces.content import latest
from akv_rsi.tasks.traces.events import (
    Amended,
    Asked,
    Event,
    Noted,
    Reset,
    Said,
    Skipped,
    Totals,
)
from akv_rsi.tasks.traces.redact import cut
from akv_rsi.tasks.traces.trace import Context, Count, Piece, Step, Trace, bundled
from akv_rsi.types import SegmentKind

IMAGE_TOKENS = 1500
# How AKV-SGLang's agents mark what is of passing interest.
EPHEMERAL = "<ephemeral_observation>"
_AGENT: frozenset[SegmentKind] = frozenset({"reasoning", "assistant", "tool_call"})
_FIRST: frozenset[SegmentKind] = frozenset({"system", "tools"})
_PINNED: frozenset[SegmentKind] = frozenset({"system", "tools", "user"})
_CALL_CHARS = 256


@dataclass(frozen=True, slots=True)
class Options:
    """How conversations are measured and how much text is kept for policies to look at.

    ``measure`` counts a text's tokens; without it sizes are characters. Of each conversation the
    first ``texts`` pieces keep their text, at most ``clip`` characters of it, head and tail. What a
    rewritten context keeps is one piece for each kind, once there have been ``copies`` of pieces.
    """

    measure: Callable[[str], int] | None = None
    texts: int = 20_000
    clip: int = 4000
    copies: int = 100_000


class _Link(NamedTuple):
    """A tool call that a result may answer."""

    context: int
    turn: int
    tool: str | None
    call: str | None


class Draft:
    """One conversation in the making."""

    def __init__(self, trace: Trace, options: Options) -> None:
        self._trace = trace
        self._options = options
        if options.measure:
            trace.unit = "token"
        self._context = Context("start")
        self._steps = self._context.steps
        self._all_steps: list[Step] = []
        self._outputs: list[Piece] = []
        self._arrivals: list[Piece] = []
        self._links: dict[str, _Link] = {}
        self._last: _Link | None = None
        self._unanswered: set[str] = set()
        self._pieces = self._copies = 0

    def take(self, event: Event) -> None:
        """Takes one event of this conversation."""
        if isinstance(event, Said):
            self._said(event)
        elif isinstance(event, Asked):
            self._asked(event)
        elif isinstance(event, Skipped):
            self._skip(event.why, event.size, event.count)
        elif isinstance(event, Reset):
            self._reset(event)
        elif isinstance(event, Amended):
            self._amended(event)
        elif isinstance(event, Totals):
            self._trace.totals = (event.input, event.output)
        elif isinstance(event, Noted):
            self._trace.flags.add(event.flag)

    def finish(self) -> Trace:
        """The conversation, complete."""
        self._flush()
        if self._context.pieces or self._context.steps or not self._trace.contexts:
            self._trace.contexts.append(self._context)
        if self._unanswered:
            self._trace.flags.add("calls_without_result")
            self._skip("tool calls without a result", 0, len(self._unanswered))
        return self._trace

    def _said(self, said: Said) -> None:
        piece = self._piece(said)
        agent = said.kind in _AGENT
        if agent and self._steps and not said.resent:
            self._steps[-1].unsent += piece.size
            self._skip("reasoning that is never sent again", len(said.text))
            return
        if said.kind == "tool_call":
            self._called(said, piece)
        elif said.kind == "tool_result":
            self._answered(said, piece)
        if agent and self._steps:
            self._outputs.append(piece)
        else:
            self._arrivals.append(piece)

    def _piece(self, said: Said) -> Piece:
        text, digest = self._clean(said.text)
        size = self._options.measure(text) if self._options.measure else len(text)
        clip = self._options.clip
        self._pieces += 1
        if self._pieces > self._options.texts:
            text = ""
        elif len(text) > clip:
            text = f"{text[: clip * 3 // 4]}\n{text[-clip // 4 :]}"
        turn = max(len(self._steps) - 1, 0)
        piece = Piece(said.kind, turn, size, said.images * IMAGE_TOKENS, text, digest=digest)
        piece.is_error, piece.origin, piece.encrypted = said.is_error, said.origin, said.encrypted
        piece.ephemeral = said.text.lstrip().startswith(EPHEMERAL)
        if said.images:
            self._skip("images, taken as 1,500 tokens each", 0, said.images)
        return piece

    def _clean(self, text: str) -> tuple[str, int]:
        """The text in well-formed Unicode, and its digest."""
        try:
            data = text.encode()
        except UnicodeEncodeError:
            fixed = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            self._skip("lone surrogates or bad bytes, replaced", 0, fixed.count("\ufffd"))
            text, data = fixed, fixed.encode()
        return text, len(data) << 32 | zlib.crc32(data)

    def _called(self, said: Said, piece: Piece) -> None:
        args = said.args or ""
        if len(args) > _CALL_CHARS:
            args = f"{cut(args, _CALL_CHARS)}...{zlib.crc32(args.encode('utf-8', 'replace')):08x}"
        link = _Link(len(self._trace.contexts), piece.turn, said.tool, args or None)
        piece.tool, self._last = said.tool, link
        if self._steps:
            self._steps[-1].calls += 1
        if said.id is not None:
            self._links[said.id] = link
            self._unanswered.add(said.id)

    def _answered(self, said: Said, piece: Piece) -> None:
        link = self._last if said.id is None else self._links.get(said.id)
        if said.id is not None:
            self._unanswered.discard(said.id)
            if link is None:
                self._skip("tool results without their call (kept)", 0)
        if link is not None:
            here = link.context == len(self._trace.contexts)
            piece.turn = link.turn if here else piece.turn
        piece.tool = (link.tool if link else None) or said.tool
        piece.call = link.call if link else None

    def _asked(self, asked: Asked) -> None:
        self._trace.model = asked.model or self._trace.model
        if asked.id is not None and self._steps and self._steps[-1].id == asked.id:
            step = self._steps[-1]
            step.recorded = latest(step.recorded, asked.recorded)
            return
        self._flush()
        if not self._steps:
            self._open_context()
        step = Step(asked.id, len(self._context.pieces), 0, asked.recorded, asked.time, asked.ttl)
        self._steps.append(step)
        self._all_steps.append(step)

    def _open_context(self) -> None:
        """Puts the opening in order and pins it: the system, the tools and the task stay."""
        pieces = self._context.pieces
        fresh = pieces[self._context.kept :]
        pieces[self._context.kept :] = sorted(fresh, key=lambda piece: piece.kind not in _FIRST)
        for number, piece in enumerate(pieces):
            is_first = number == 0 and piece.kind != "tool_result"
            piece.pinned = is_first or piece.kind in _PINNED

    def _amended(self, event: Amended) -> None:
        if not 0 <= event.call < len(self._all_steps):
            self._skip("usage of a call that is not in the file")
            return
        step = self._all_steps[event.call]
        step.recorded = latest(step.recorded, event.recorded)
        if event.unsent:
            measure = self._options.measure or len
            step.unsent += measure(self._clean(event.unsent)[0])
            self._skip("reasoning that is never sent again", len(event.unsent))

    def _reset(self, event: Reset) -> None:
        self._flush()
        old = self._context
        self._context = Context(event.cause)
        self._steps = self._context.steps
        self._trace.flags.add(event.cause)
        kept, place, names = list[Piece](), None, event.forgotten
        for piece in old.pieces:
            if piece.kind not in _FIRST if names is None else piece.origin in names:
                place = len(kept) if place is None else place
            else:
                kept.append(replace(piece, turn=0, pinned=False, copied=True))
        same, rest = (kept, []) if place is None else (kept[:place], kept[place:])
        self._copies += len(kept) if old.steps else 0
        if self._copies > self._options.copies:
            same, rest = bundled(same), bundled(rest)
        self._context.pieces, self._context.kept = same + rest, len(same)
        if event.summary:
            summary = self._piece(Said("user", event.summary))
            summary.turn = 0
            self._context.pieces.insert(self._context.kept, summary)
        if old.steps:
            self._trace.contexts.append(old)
        else:
            self._context.cause = old.cause

    def _flush(self) -> None:
        """What was said since the last call goes to its place behind it."""
        pieces = self._context.pieces
        pieces.extend(self._outputs)
        if self._steps:
            self._steps[-1].end = len(pieces)
        pieces.extend(self._arrivals)
        self._outputs, self._arrivals = [], []

    def _skip(self, why: str, size: int = 0, number: int = 1) -> None:
        counted = self._trace.skipped.setdefault(why, Count())
        counted.count += number
        counted.size += size
