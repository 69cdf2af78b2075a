"""Fidelity: how likely a model still finds the recorded actions when a policy has been at work.

The recorded text is forced through the engine once as it was and once under the policy's ops (or
with the policy's edits of the text); of each token of the agent's own messages the log-probability
is compared. One pass scores all calls of a context, since ops only change what comes after them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from akv_rsi.errors import OpError
from akv_rsi.tasks.traces.model import Modelled
from akv_rsi.tasks.traces.objective import Judged
from akv_rsi.tasks.traces.replays import Replayed
from akv_rsi.tasks.traces.scripts import Script
from akv_rsi.types import Drop, Op, OpHistory, Range, Segment, Usage

Floats = NDArray[np.float64]
# The logits of so many tokens are held at once.
PASS = 512
# A call that keeps less than this of its tokens' probability counts as lost.
LOST = 0.9


class Scores(Protocol):
    """What fidelity needs of an engine."""

    def scores(self, tokens: Sequence[int], history: OpHistory, cuts: Sequence[int]) -> Any:
        """The log-probability of all tokens but the first, each given those before it."""
        ...


class CallScore(NamedTuple):
    """One call: the summed log-probability of its ``tokens`` in nats, everything kept and not."""

    tokens: int
    full: float
    policy: float

    @property
    def gap(self) -> float:
        """Nats per token between the two; negative is a loss."""
        return (self.policy - self.full) / self.tokens if self.tokens else 0.0

    @property
    def kept(self) -> float:
        """How much of a token's probability is left, in geometric mean; at most 1."""
        return math.exp(min(0.0, self.gap))


class Hurt(NamedTuple):
    """A segment whose loss hurt: ``nats`` more would be there without it, most in ``call``."""

    segment: Segment
    nats: float
    call: int


class Fidelity:
    """Scores policies on scripts with one engine. What keeping everything scores is remembered."""

    def __init__(self, engine: Scores) -> None:
        self._engine = engine
        self._full: dict[str, Floats] = {}

    def calls(self, script: Script, replayed: Replayed) -> list[CallScore]:
        """Every call of ``script`` under a policy, against keeping everything."""
        return _by_call(script, self._of_full(script), self._of(script, replayed))

    def hurts(self, script: Script, replayed: Replayed, most: int) -> list[Hurt]:
        """Of the ``most`` largest segments the policy took away, how much the loss of each cost.

        Each is given back alone, for the whole conversation; the most hurtful come first.
        """
        segments = script.context.trajectory.segments
        gone = frozenset[int]().union(*replayed.gone)
        largest = sorted((segments[i] for i in gone), key=lambda s: (-s.tokens, s.id))[:most]
        before, found = self._of(script, replayed), list[Hurt]()
        for segment in largest:
            try:
                after = self._of(script, _without(replayed, segment))
            except OpError:  # the policy restores it later: there is nothing to give back
                continue
            gains = [score.policy - score.full for score in _by_call(script, before, after)]
            found.append(Hurt(segment, sum(gains), int(np.argmax(gains))))
        return sorted(found, key=lambda hurt: -hurt.nats)

    def _of_full(self, script: Script) -> Floats:
        name = script.context.trajectory.id
        if name not in self._full:
            self._full[name] = self._score(script.tokens, OpHistory())
        return self._full[name]

    def _of(self, script: Script, replayed: Replayed) -> Floats:
        """The log-probability of each token, 0 for the first, under the policy."""
        if replayed.edits:
            return self._edited(script, replayed.gone)
        ops = tuple(op for call in replayed.calls for op in call.ops)
        return self._score(script.tokens, OpHistory(ops)) if ops else self._of_full(script)

    def _edited(self, script: Script, gone: Sequence[frozenset[int]]) -> Floats:
        """The same when text is removed: calls between two edits share one text, and one pass."""
        found = self._of_full(script).copy()
        calls, segments = script.context.trajectory.calls, script.context.trajectory.segments
        for removed, together in groupby(range(len(calls)), key=lambda number: gone[number]):
            numbers = list(together)
            if not removed:
                continue
            end = calls[numbers[-1]].prompt + calls[numbers[-1]].output
            kept = [s for s in segments if s.end <= end and s.id not in removed]
            places = np.concatenate([np.arange(s.start, s.end) for s in kept])
            scores = self._score([script.tokens[place] for place in places], OpHistory())
            new = places >= calls[numbers[0]].prompt
            found[places[new]] = scores[new]
        return found

    def _score(self, tokens: Sequence[int], history: OpHistory) -> Floats:
        cuts = range(PASS, len(tokens), PASS)
        return np.concatenate([[0.0], np.asarray(self._engine.scores(tokens, history, cuts))])


class ModelObjective:
    """Fidelity as the objective of a search: a call is kept as far as its tokens stay likely.

    ``make`` loads the engine, once in each process. ``scripts`` go by the ids of their contexts.
    Decisions that were judged before, by whichever policy, are not run again: most candidates do
    on most conversations what another one did.
    """

    def __init__(self, make: Callable[[], Scores], scripts: Mapping[str, Script]) -> None:
        self._make = make
        self._scripts = scripts
        self._fidelity: Fidelity | None = None
        self._known: dict[tuple[object, ...], Judged] = {}

    def judge(self, context: Modelled, replayed: Replayed, usages: Sequence[Usage]) -> Judged:
        """See `Objective`. The model judges the text as it is, so nothing is fetched again."""
        if self._fidelity is None:
            self._fidelity = Fidelity(self._make())
        name = context.trajectory.id
        ops = tuple(op for call in replayed.calls for op in call.ops)
        key = (name, ops, replayed.gone if replayed.edits else ())
        if key not in self._known:
            kept = [s.kept for s in self._fidelity.calls(self._scripts[name], replayed)]
            judged = Judged(sum(kept), sum(value < LOST for value in kept), Usage())
            self._known[key] = judged
        return self._known[key]


def _by_call(script: Script, full: Floats, policy: Floats) -> list[CallScore]:
    found = []
    for number in range(len(script.context.trajectory.calls)):
        spoken = script.spoken(number)
        count = sum(end - start for start, end in spoken)
        sums = [sum(float(row[a:b].sum()) for a, b in spoken) for row in (full, policy)]
        found.append(CallScore(count, *sums))
    return found


def _without(replayed: Replayed, segment: Segment) -> Replayed:
    """The same decisions, but ``segment`` is never taken away."""
    if replayed.edits:
        return replace(replayed, gone=tuple(gone - {segment.id} for gone in replayed.gone))
    calls = []
    for call in replayed.calls:
        ops = [_spare(op, segment) for op in call.ops]
        calls.append(replace(call, ops=tuple(op for op in ops if op is not None)))
    return replace(replayed, calls=tuple(calls))


def _spare(op: Op, segment: Segment) -> Op | None:
    """``op``, but a Drop spares ``segment``."""
    if not isinstance(op, Drop):
        return op
    ranges = [piece for range_ in op.ranges for piece in _outside(range_, segment)]
    return Drop(op.boundary, tuple(ranges)) if ranges else None


def _outside(range_: Range, segment: Segment) -> Iterator[Range]:
    start, end = range_
    if start < min(end, segment.start):
        yield start, min(end, segment.start)
    if max(start, segment.end) < end:
        yield max(start, segment.end), end
