"""A calibrated trace as trajectories, one for each of its contexts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from akv_rsi.tasks.traces.calibrate import Scale, calibrate
from akv_rsi.tasks.traces.trace import Context, Step, Trace
from akv_rsi.types import Call, Segment, Trajectory


@dataclass(frozen=True, slots=True)
class Modelled:
    """One context in tokens. Its tuples hold one entry for each call.

    ``times`` are seconds since 1970 where the file tells them. ``extra`` output tokens are billed
    but never come back: reasoning that is not sent again. The first ``warm`` tokens of the first
    prompt began the context before, too. ``since`` is the time of the call before the first.
    """

    trajectory: Trajectory
    cause: str
    times: tuple[float | None, ...]
    extra: tuple[int, ...]
    warm: int = 0
    since: float | None = None

    def first(self, calls: int) -> Modelled:
        """This context as it was after so many calls."""
        if calls >= len(self.times):
            return self
        trajectory = self.trajectory
        end = trajectory.calls[calls - 1].prompt + trajectory.calls[calls - 1].output
        segments = tuple(s for s in trajectory.segments if s.end <= end)
        short = replace(trajectory, segments=segments, calls=trajectory.calls[:calls])
        return replace(self, trajectory=short, times=self.times[:calls], extra=self.extra[:calls])


def model(trace: Trace, scale: Scale) -> list[Modelled]:
    """The contexts of ``trace`` that have calls, in tokens."""
    contexts: list[Modelled] = []
    for number, context in enumerate(trace.contexts):
        if not context.steps:
            continue
        name = f"{trace.path}#{trace.id}.{number}"
        one = _context(context, scale, scale.hidden[number], name, trace.path)
        if contexts:
            warm = _warm(context, one, contexts[-1])
            one = replace(one, warm=warm, since=contexts[-1].times[-1])
        contexts.append(one)
    return contexts


def trajectories(trace: Trace) -> list[Trajectory]:
    """The trace as trajectories that only grow, calibrated by its own records: one a context."""
    return [context.trajectory for context in model(trace, calibrate(trace))]


def _context(context: Context, scale: Scale, hidden: int, name: str, source: str) -> Modelled:
    segments = _segments(context, scale, hidden)
    shift = len(segments) - len(context.pieces)
    calls: list[Call] = []
    extra: list[int] = []
    reused = 0
    for step in context.steps:
        prompt = segments[step.prompt + shift - 1].end if step.prompt + shift else 0
        end = segments[step.end + shift - 1].end if step.end + shift else 0
        output = end - prompt
        usage = step.recorded.usage if step.recorded else None
        calls.append(Call(prompt, reused, output, recorded=usage))
        extra.append(_extra(step, output, scale))
        reused = end
    times = tuple(step.time for step in context.steps)
    trajectory = Trajectory(name, tuple(segments), tuple(calls), source)
    return Modelled(trajectory, context.cause, times, tuple(extra))


def _segments(context: Context, scale: Scale, hidden: int) -> list[Segment]:
    """The pieces in whole tokens, at least one each, behind a segment for what the file lacks."""
    segments: list[Segment] = []
    if hidden:
        segments.append(Segment(0, "system", 0, 0, hidden, "", pinned=True))
    reasoning = _reasoning(context)
    total, end = float(hidden), hidden
    for number, piece in enumerate(context.pieces):
        total += scale.tokens(piece, reasoning.get(number, 0))
        start, end = end, max(end + 1, round(total))
        segments.append(
            Segment(
                id=len(segments),
                kind=piece.kind,
                turn=piece.turn,
                start=start,
                end=end,
                text=piece.text,
                tool=piece.tool,
                call=piece.call,
                is_error=piece.is_error,
                ephemeral=piece.ephemeral,
                pinned=piece.pinned,
            )
        )
    return segments


def _reasoning(context: Context) -> dict[int, int]:
    """The recorded size of encrypted reasoning, by the number of the first such piece of a call."""
    found: dict[int, int] = {}
    for step in context.steps:
        if step.recorded and step.recorded.reasoning:
            for number in range(step.prompt, step.end):
                if context.pieces[number].encrypted:
                    found[number] = step.recorded.reasoning
                    break
    return found


def _extra(step: Step, output: int, scale: Scale) -> int:
    """Output beyond the visible one. Records may be stubs, so the larger of both is believed."""
    unsent = round(scale.per_unit * step.unsent)
    recorded = step.recorded.usage.output if step.recorded else 0
    return max(recorded - output, unsent)


def _warm(context: Context, one: Modelled, before: Modelled) -> int:
    """How many leading tokens the first prompt shares with the context before."""
    segments = one.trajectory.segments
    hidden = len(segments) - len(context.pieces)
    shared = segments[: hidden + context.kept]
    first = one.trajectory.calls[0].prompt
    longest = before.trajectory.calls[-1]
    return min(shared[-1].end if shared else 0, first, longest.prompt + longest.output)
