"""How many tokens a trace's characters are, and how much of its prompts the file does not hold.

Where the usage of single calls is recorded, prompts are taken as

    recorded prompt = hidden + tokens_per_unit * visible size + fixed

with one ``tokens_per_unit`` for the trace (least squares over the calls of its contexts) and one
``hidden`` for each context (the median of what is left): system prompts and tool schemas that the
file leaves out. Where only sums are recorded, they scale the sizes. Else characters are taken at
`TOKENS_PER_CHAR`: what traces of four formats with recorded usage have in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import Literal, NamedTuple

from akv_rsi.tasks.traces.trace import Context, Piece, Trace

# Code and JSON take 1.2 to 1.3 times as many tokens as the usual quarter of their characters.
TOKENS_PER_CHAR = 1.25 / 4
# A fit outside of this range, as a multiple of what is assumed, is no fit.
_LOW, _HIGH = 0.4, 3.0
FEWEST_CALLS = 4


@dataclass(frozen=True, slots=True)
class Scale:
    """The calibration of one trace.

    ``hidden`` holds the tokens of each context's unseen beginning. ``source`` says what it rests
    on. ``error`` is the median relative error of the calls' prompts, ``worst`` the largest one;
    None where single calls are not recorded. ``unfit`` says why records were not used.
    """

    per_unit: float
    hidden: tuple[int, ...]
    source: Literal["calls", "totals", "assumed"]
    calls: int = 0
    error: float | None = None
    worst: float | None = None
    unfit: str = ""

    def tokens(self, piece: Piece, recorded_reasoning: int = 0) -> float:
        """A piece's tokens; those of encrypted reasoning are what the usage records."""
        if piece.encrypted and recorded_reasoning:
            return recorded_reasoning + piece.fixed
        return self.per_unit * piece.size + piece.fixed


class _Point(NamedTuple):
    """One recorded prompt: its tokens without the fixed ones, and its visible size."""

    context: int
    tokens: int
    size: int


def calibrate(trace: Trace) -> Scale:
    """The calibration of a trace."""
    assumed = TOKENS_PER_CHAR if trace.unit == "char" else 1.0
    none = (0,) * len(trace.contexts)
    points = [*_points(trace)]
    if len(points) < FEWEST_CALLS:
        return _few(trace, points, assumed) if points else _totals(trace, assumed)
    per_unit = _slope(points)
    if not _LOW * assumed <= per_unit <= _HIGH * assumed:
        why = "recorded prompts do not grow with the text in the file"
        hidden = _hidden(points, assumed, len(none))
        return _judged(Scale(assumed, hidden, "assumed", len(points), unfit=why), points)
    hidden = _hidden(points, per_unit, len(none))
    return _judged(Scale(per_unit, hidden, "calls", len(points)), points)


def visible(context: Context) -> Iterator[tuple[int, int]]:
    """Before each call: the size of the visible text, and its fixed tokens."""
    size = fixed = at = 0
    reasoning = 0
    for step in context.steps:
        while at < step.prompt:
            piece = context.pieces[at]
            at += 1
            if piece.encrypted and reasoning:
                fixed, reasoning = fixed + reasoning, 0
            else:
                size += piece.size
            fixed += piece.fixed
        yield size, fixed
        reasoning = step.recorded.reasoning if step.recorded else 0


def _points(trace: Trace) -> Iterator[_Point]:
    for number, context in enumerate(trace.contexts):
        for step, (size, fixed) in zip(context.steps, visible(context), strict=True):
            if step.recorded:
                usage = step.recorded.usage
                yield _Point(number, usage.uncached + usage.cached - fixed, size)


def _slope(points: Sequence[_Point]) -> float:
    """Least squares within contexts; through the origin if nothing would be left of the hidden."""
    over = under = 0.0
    # The points come context by context, and a session may have thousands of contexts.
    for _, inside in groupby(points, key=lambda point: point.context):
        own = [*inside]
        size, tokens = (sum(p[k] for p in own) / len(own) for k in (2, 1))
        over += sum((p.size - size) * (p.tokens - tokens) for p in own)
        under += sum((p.size - size) ** 2 for p in own)
    slope = over / under if under else 0.0
    if slope > 0 and sum(p.tokens - slope * p.size for p in points) < 0:
        slope = sum(p.tokens * p.size for p in points) / sum(p.size**2 for p in points)
    return slope


def _hidden(points: Sequence[_Point], per_unit: float, contexts: int) -> tuple[int, ...]:
    """Per context, what its visible text does not explain; without records, the others' mean."""
    rest: dict[int, list[float]] = {}
    for point in points:
        rest.setdefault(point.context, []).append(point.tokens - per_unit * point.size)
    known = {number: max(0, round(median(values))) for number, values in rest.items()}
    mean = round(sum(known.values()) / len(known))
    return tuple(known.get(number, mean) for number in range(contexts))


def _judged(scale: Scale, points: Sequence[_Point]) -> Scale:
    errors = [
        abs(scale.hidden[p.context] + scale.per_unit * p.size - p.tokens) / max(p.tokens, 1)
        for p in points
    ]
    return Scale(
        scale.per_unit,
        scale.hidden,
        scale.source,
        scale.calls,
        median(errors),
        max(errors),
        scale.unfit,
    )


def _few(trace: Trace, points: Sequence[_Point], assumed: float) -> Scale:
    """A call or two tell the hidden part, if the scale is taken for granted."""
    hidden = _hidden(points, assumed, len(trace.contexts))
    return _judged(Scale(assumed, hidden, "assumed", len(points)), points)


def _totals(trace: Trace, assumed: float) -> Scale:
    """From the sum of all prompts: the scale if it is a likely one, else the hidden part."""
    none = (0,) * len(trace.contexts)
    prompts = [v for context in trace.contexts for v in visible(context)]
    size, fixed = sum(v[0] for v in prompts), sum(v[1] for v in prompts)
    if trace.totals is None or not size:
        return Scale(assumed, none, "assumed")
    per_unit = (trace.totals[0] - fixed) / size
    if 0.6 * assumed <= per_unit <= 1.4 * assumed:
        return Scale(per_unit, none, "totals")
    hidden = round((trace.totals[0] - fixed - assumed * size) / len(prompts))
    if hidden < 0:
        why = "recorded sums are smaller than the text in the file"
        return Scale(assumed, none, "assumed", unfit=why)
    return Scale(assumed, (hidden,) * len(none), "totals")
