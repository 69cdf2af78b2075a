"""What a trace is made of: tokens by kind of text and by tool, and the reads they caused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from akv_rsi.tasks.traces.model import Modelled
from akv_rsi.tasks.traces.trace import Trace
from akv_rsi.types import Segment

UNSEEN = "not in the file"


@dataclass(frozen=True, slots=True)
class Share:
    """Text of one kind, or from one tool.

    ``tokens`` counts each stretch once, ``read`` once more for every later call that sent it again.
    ``count`` is how many stretches there are.
    """

    name: str
    tokens: int
    read: int
    count: int


def by_kind(contexts: Sequence[Modelled], trace: Trace) -> tuple[Share, ...]:
    """Tokens by the kind of segment; what the file lacks of the prompts is a kind of its own."""
    return _shares(contexts, trace, lambda segment: segment.kind, UNSEEN)


def by_tool(contexts: Sequence[Modelled], trace: Trace) -> tuple[Share, ...]:
    """Tokens of tool results by the tool they came from."""
    return _shares(
        contexts,
        trace,
        lambda segment: (segment.tool or "?") if segment.kind == "tool_result" else None,
        None,
    )


def _shares(
    contexts: Sequence[Modelled],
    trace: Trace,
    name_of: Callable[[Segment], str | None],
    unseen: str | None,
) -> tuple[Share, ...]:
    table: dict[str, list[int]] = {}
    sources = [context for context in trace.contexts if context.steps]
    for number, (context, source) in enumerate(zip(contexts, sources, strict=True)):
        calls, at = context.trajectory.calls, 0
        hidden = len(context.trajectory.segments) - len(source.pieces)
        for position, segment in enumerate(context.trajectory.segments):
            while at < len(calls) and calls[at].prompt < segment.end:
                at += 1
            is_hidden = position < hidden
            name = unseen if is_hidden else name_of(segment)
            if name is None:
                continue
            is_new = not number if is_hidden else not source.pieces[position - hidden].copied
            row = table.setdefault(name, [0, 0, 0])
            row[0] += segment.tokens * is_new
            row[1] += segment.tokens * max(0, len(calls) - at - 1)
            row[2] += is_new
    shares = (Share(name, *row) for name, row in table.items())
    return tuple(sorted(shares, key=lambda share: (-share.tokens, share.name)))
