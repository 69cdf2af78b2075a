"""Op histories as rows of one training pass.

A row is a unit ``(token, version)``. Row ``i`` sees row ``j`` iff ``born[j] <= time[i] < gone[j]``
and ``logical[j] < logical[i]`` or ``j == i``: the contract of the ops, in four integers a row. So
drops, refreshes and repositioned histories are trained in one parallel forward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from akv_rsi.types import Drop, OpHistory, Range, Repos
from akv_rsi.visibility import Visibility

NEVER = 1 << 30
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Units:
    """The rows of a history. All arrays are ``[rows]`` but ``positions``: ``[phases, rows]``.

    ``phase`` counts the Repos before a row's time; a row's own rotary position is
    ``positions[phase[i], i]``, and it sees row ``j`` at ``positions[phase[i], j]``.
    """

    logical: Ints
    time: Ints
    born: Ints
    gone: Ints
    phase: Ints
    positions: Ints


def units_of(length: int, history: OpHistory) -> Units:
    """The rows of ``length`` tokens under ``history``: version 0 of each, then refreshed ones."""
    logical = list(range(length))
    time, born, gone = list(logical), list(logical), [NEVER] * length
    current = list(logical)
    phases, starts = [np.arange(length)], [0]
    state = Visibility()
    for boundary, ops in history.groups():
        state, refreshed = state.append(boundary - state.length).apply(ops)
        ends: tuple[Range, ...] = next((op.ranges for op in ops if isinstance(op, Drop)), ())
        for token in _tokens((*ends, *refreshed)):
            gone[current[token]] = boundary
        for token in _tokens(refreshed):
            current[token] = len(logical)
            logical.append(token)
            time.append(boundary)
            born.append(boundary)
            gone.append(NEVER)
        if any(isinstance(op, Repos) for op in ops):
            phases.append(_positions(state.append(length - boundary), length))
            starts.append(boundary)
    rows, times = np.array(logical), np.array(time)
    phase = np.searchsorted(np.array(starts), times, side="right") - 1
    positions = np.stack([table[rows] for table in phases])
    return Units(rows, times, np.array(born), np.array(gone), phase, positions)


def _tokens(ranges: Sequence[Range]) -> list[int]:
    return [token for start, end in ranges for token in range(start, end)]


def _positions(state: Visibility, length: int) -> Ints:
    table = np.zeros(length, dtype=np.int64)
    for run in state.runs:
        if run.position is not None:
            table[run.start : run.end] = np.arange(run.position, run.position + run.end - run.start)
    return table
