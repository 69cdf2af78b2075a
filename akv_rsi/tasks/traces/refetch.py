"""Content that was fetched twice: the same call again, or the same result from another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from akv_rsi.tasks.traces.calibrate import Scale
from akv_rsi.tasks.traces.needs import SHORTEST_RESULT
from akv_rsi.tasks.traces.trace import Piece, Trace


@dataclass(slots=True)
class Repeat:
    """One call that was made ``times`` times in all; what came again was ``tokens`` long.

    ``identical`` counts repetitions with exactly the result of the time before; ``after_reset``
    those that followed a compaction or an edit of the context that had held the result.
    """

    tool: str
    call: str
    times: int = 1
    tokens: int = 0
    identical: int = 0
    after_reset: int = 0


@dataclass(frozen=True, slots=True)
class Refetched:
    """What a trace fetched again, in tokens.

    ``repeated`` is text of results of calls made before, ``identical`` the part of it that did not
    change, ``copies`` identical results of different calls, ``after_reset`` what was fetched again
    because its context was gone. ``repeats`` are the calls, the largest first.
    """

    results: int
    repeated: int
    identical: int
    copies: int
    after_reset: int
    repeats: tuple[Repeat, ...]


@dataclass(frozen=True, slots=True)
class _Seen:
    context: int
    digest: int
    repeat: Repeat


def find_refetched(trace: Trace, scale: Scale) -> Refetched:
    """What a trace fetched again."""
    calls: dict[tuple[str, str], _Seen] = {}
    digests: set[int] = set()
    results = repeated = identical = copies = after = 0
    for number, context in enumerate(trace.contexts):
        for piece in _results(context.pieces):
            tokens = round(scale.tokens(piece))
            results += tokens
            same = piece.digest in digests and piece.size >= SHORTEST_RESULT
            digests.add(piece.digest)
            if piece.tool is None or piece.call is None:
                copies += tokens if same else 0
                continue
            key = (piece.tool, piece.call)
            seen = calls.get(key)
            if seen is None:
                calls[key] = _Seen(number, piece.digest, Repeat(*key))
                copies += tokens if same else 0
                continue
            is_same, is_after = seen.digest == piece.digest, seen.context != number
            repeated, identical = repeated + tokens, identical + tokens * is_same
            after += tokens * is_after
            repeat = seen.repeat
            repeat.times, repeat.tokens = repeat.times + 1, repeat.tokens + tokens
            repeat.identical += is_same
            repeat.after_reset += is_after
            calls[key] = _Seen(number, piece.digest, repeat)
    again = sorted((s.repeat for s in calls.values() if s.repeat.times > 1), key=_largest)
    return Refetched(results, repeated, identical, copies, after, tuple(again))


def _results(pieces: Sequence[Piece]) -> list[Piece]:
    return [piece for piece in pieces if piece.kind == "tool_result" and not piece.copied]


def _largest(repeat: Repeat) -> tuple[int, str, str]:
    return -repeat.tokens, repeat.tool, repeat.call
