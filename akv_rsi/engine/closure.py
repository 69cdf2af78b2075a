"""Which lost KV must be computed again: the reverse closure over visibility, without tensors.

A unit is a (token, epoch): a token's KV as computed after that many groups of ops. It was computed
from the units visible in its epoch at tokens before its own, so they are what recomputing it
reads. Nothing reads a unit of a later epoch than its own: one sweep from the last epoch to the
first finds every unit that a planned query reads, directly or through others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from akv_rsi.types import Range
from akv_rsi.visibility import Visibility

if TYPE_CHECKING:
    from akv_rsi.engine.pool import Ints


class Read(NamedTuple):
    """Queries that see the visible units of ``state`` at tokens before ``end``."""

    state: Visibility
    end: int


def closure(
    reads: Iterable[Read], states: Sequence[Visibility], gone: Sequence[Ints]
) -> list[Ints]:
    """The tokens to recompute, per epoch, ascending.

    ``gone[epoch]`` are the tokens (ascending) whose KV of that epoch is lost; ``states[epoch]`` is
    the state right after that many groups of ops.
    """
    wanted: list[list[Range]] = [[] for _ in gone]
    for read in reads:
        _want(read, wanted)
    needed = list(gone)
    for epoch in reversed(range(len(gone))):
        tokens = _inside(gone[epoch], wanted[epoch])
        if tokens.size:
            last = int(tokens[-1])
            state = states[epoch]
            _want(Read(state.append(max(0, last - state.length)), last), wanted)
            tokens = _inside(gone[epoch], wanted[epoch])
        needed[epoch] = tokens
    return needed


def _want(read: Read, wanted: list[list[Range]]) -> None:
    """Notes per epoch what ``read`` sees; units of epochs past the last are not lost."""
    for run in read.state.runs:
        if run.visible and run.start < read.end and run.epoch < len(wanted):
            wanted[run.epoch].append((run.start, min(run.end, read.end)))


def _inside(tokens: Ints, ranges: list[Range]) -> Ints:
    inside = np.zeros(len(tokens), dtype=bool)
    if tokens.size:
        for start, end in ranges:
            low, high = np.searchsorted(tokens, (start, end))
            inside[low:high] = True
    return tokens[inside]
