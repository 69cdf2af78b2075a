"""Recorded contexts in the tokens of a model, so that an engine can run them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from akv_rsi.policies.resident import AGENT_KINDS
from akv_rsi.tasks.agent import ChatFormat
from akv_rsi.tasks.environment import Message
from akv_rsi.tasks.traces.calibrate import calibrate
from akv_rsi.tasks.traces.corpus import WHOLE
from akv_rsi.tasks.traces.draft import Options
from akv_rsi.tasks.traces.model import Modelled, model
from akv_rsi.tasks.traces.read import Reading, find_files
from akv_rsi.types import Call, Range, Segment, Trajectory


@dataclass(frozen=True, slots=True)
class Script:
    """A recorded context in the tokens of a model: ``context`` counts them, segment by segment.

    ``header`` leading tokens of the agent's messages are the format's, not the agent's.
    """

    context: Modelled
    tokens: tuple[int, ...]
    header: int

    def spoken(self, number: int) -> list[Range]:
        """What the agent itself wrote in call ``number``."""
        call = self.context.trajectory.calls[number]
        return [
            (segment.start + self.header, segment.end)
            for segment in self.context.trajectory.segments
            if call.prompt <= segment.start < call.prompt + call.output
            and segment.kind in AGENT_KINDS
            and segment.start + self.header < segment.end
        ]


def recorded(reading: Reading) -> Iterator[Modelled]:
    """The contexts in transcripts, file by file."""
    for trace in reading:
        yield from model(trace, calibrate(trace))


def reading_whole(paths: Sequence[str]) -> Reading:
    """Reads transcripts with their whole text."""
    return Reading(find_files(paths), Options(clip=WHOLE))


def script_of(context: Modelled, chat: ChatFormat, limit: int) -> Script | None:
    """``context`` in the tokens of ``chat``, its first calls within ``limit`` tokens.

    What a file does not hold (a hidden prefix) is left out. None when not even two calls fit.
    """
    old = context.trajectory
    tokens, segments, ends = list[int](), list[Segment](), [0]
    for segment in old.segments:
        if segment.text:
            said = Message(segment.kind, segment.text, segment.tool, segment.call)
            encoded = chat.encode(said)
            start = len(tokens)
            tokens += encoded
            segments.append(
                replace(segment, id=len(segments), start=start, end=start + len(encoded))
            )
        ends.append(len(tokens))
    borders = [0, *(segment.end for segment in old.segments)]
    calls, reused = list[Call](), 0
    for call in old.calls:
        # A header may be part of the prompt, and a marker that was not sampled follows the answer.
        prompt = ends[bisect_right(borders, call.prompt) - 1]
        end = ends[bisect_left(borders, call.prompt + call.output)]
        if end > limit:
            break
        calls.append(Call(prompt, reused, end - prompt))
        reused = end
    if len(calls) < 2:
        return None
    kept = tuple(segment for segment in segments if segment.end <= reused)
    trajectory = Trajectory(old.id, kept, tuple(calls), old.source)
    count = len(calls)
    one = Modelled(trajectory, context.cause, context.times[:count], (0,) * count)
    return Script(one, tuple(tokens[:reused]), len(chat.prompt()))


class Scripts:
    """Turns contexts into scripts, and keeps them in ``found`` by the id of their context."""

    def __init__(self, chat: ChatFormat, limit: int) -> None:
        self.found: dict[str, Script] = {}
        self._chat = chat
        self._limit = limit

    def __call__(self, context: Modelled) -> Modelled | None:
        """The context in the model's tokens; None if it has not even two calls within the limit."""
        script = script_of(context, self._chat, self._limit)
        if script is None:
            return None
        self.found[script.context.trajectory.id] = script
        return script.context
