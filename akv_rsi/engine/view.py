"""What one sequence sees: a slot and a birth position per token, under a `Visibility`.

Dropping is a change of visibility, repositioning one of deltas: neither moves a key. The view
turns the runs of its `Visibility` into what attention reads: slots in logical order, in runs of
equal delta (`Keys`), or the same as page entries with slot masks (`PageEntries`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from akv_rsi.engine.pool import Ints
from akv_rsi.types import Range
from akv_rsi.visibility import Applied, Visibility


class DeltaRun(NamedTuple):
    """Keys ``[start, end)`` of a list stand ``delta`` positions from where they were rotated."""

    start: int
    end: int
    delta: int


class Keys(NamedTuple):
    """The visible keys of a sequence in logical order.

    ``slots``, ``tokens`` (logical indices) and ``positions`` (as seen now) run in parallel.
    """

    slots: Ints
    tokens: Ints
    positions: Ints
    runs: tuple[DeltaRun, ...]


class PageEntries(NamedTuple):
    """The view as a page table: ``page[i]`` with slots ``mask[i]`` (a bit each) at ``delta[i]``."""

    page: Ints
    mask: Ints
    delta: Ints


class View:
    """The growing view of one sequence of at most ``capacity`` tokens."""

    def __init__(self, capacity: int) -> None:
        self._slots = np.zeros(capacity, dtype=np.int64)
        self._births = np.zeros(capacity, dtype=np.int64)
        self._state = Visibility()
        self.length = 0

    @property
    def state(self) -> Visibility:
        """The visibility of all ``length`` tokens."""
        if self._state.length < self.length:
            self._state = self._state.append(self.length - self._state.length)
        return self._state

    @property
    def next_position(self) -> int:
        """The position of the next token."""
        return self._state.next_position + self.length - self._state.length

    def append(self, slots: Ints, birth: int | None = None) -> None:
        """New tokens in ``slots``, at positions from ``birth`` (default: ``next_position``) on."""
        start, end = self.length, self.length + len(slots)
        birth = self.next_position if birth is None else birth
        self._slots[start:end] = slots
        self._births[start:end] = np.arange(birth, birth + len(slots))
        self.length = end

    def apply(self, applied: Applied, slots: Ints) -> None:
        """Ops at the present boundary; their refreshed tokens move to ``slots``, born here."""
        assert applied.visibility.length == self.length
        self._state = applied.visibility
        if applied.refreshed:
            tokens = indices(applied.refreshed)
            self._slots[tokens] = slots
            for run in self._state.runs:
                if run.position is not None:
                    inside = tokens[(tokens >= run.start) & (tokens < run.end)]
                    self._births[inside] = inside - run.start + run.position

    def slots(self, tokens: Ints) -> Ints:
        """The slots of ``tokens``."""
        return self._slots[tokens]

    def births(self, tokens: Ints) -> Ints:
        """The positions at which ``tokens`` had their KV computed."""
        return self._births[tokens]

    def keys(self) -> Keys:
        """The visible keys, in logical order."""
        tokens: list[Ints] = []
        positions: list[Ints] = []
        runs: list[DeltaRun] = []
        column = 0
        for run in self.state.runs:
            if not run.visible:
                continue
            assert run.position is not None, "visible tokens have a position"
            size = run.end - run.start
            tokens.append(np.arange(run.start, run.end))
            positions.append(np.arange(run.position, run.position + size))
            # One epoch and consecutive positions: the whole run moved by the same delta.
            delta = run.position - int(self._births[run.start])
            if runs and runs[-1].delta == delta:
                runs[-1] = DeltaRun(runs[-1].start, column + size, delta)
            else:
                runs.append(DeltaRun(column, column + size, delta))
            column += size
        visible = np.concatenate(tokens)
        return Keys(self._slots[visible], visible, np.concatenate(positions), tuple(runs))

    def entries(self, page_size: int) -> PageEntries:
        """The page table: one entry per run of visible slots that share page and delta."""
        keys = self.keys()
        deltas = keys.positions - self._births[keys.tokens]
        pages, offsets = keys.slots // page_size, keys.slots % page_size
        first = np.ones(len(pages), dtype=bool)
        first[1:] = (pages[1:] != pages[:-1]) | (deltas[1:] != deltas[:-1])
        starts = np.flatnonzero(first)
        masks = np.bitwise_or.reduceat(np.left_shift(1, offsets), starts)
        return PageEntries(pages[starts], masks, deltas[starts])


def indices(ranges: tuple[Range, ...]) -> Ints:
    """The tokens in ``ranges``, ascending."""
    spans = [np.arange(start, end) for start, end in ranges]
    return np.concatenate(spans) if spans else np.empty(0, dtype=np.int64)
