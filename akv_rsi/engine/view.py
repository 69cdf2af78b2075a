"""What one sequence sees: a slot and a birth position per token, under a `Visibility`.

Tokens whose KV is gone have the slot `GONE`; no query reads them (`closure` sees to it).

Dropping is a change of visibility, repositioning one of deltas: neither moves a key. The view
turns the runs of its `Visibility` into what attention reads: slots in logical order, in runs of
equal delta (`Keys`), or the same as page entries with slot masks (`PageEntries`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from akv_rsi.engine.node import EMPTY, GONE, Moved, indices
from akv_rsi.engine.pool import Ints
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

    @property
    def deltas(self) -> Ints:
        """Of each key, how far it stands from where it was rotated."""
        deltas = np.array([run.delta for run in self.runs], dtype=np.int64)
        return np.repeat(deltas, [run.end - run.start for run in self.runs])

    def head(self, count: int) -> Keys:
        """The first ``count`` of them."""
        if count == len(self.slots):
            return self
        runs = (DeltaRun(run.start, min(run.end, count), run.delta) for run in self.runs)
        first = tuple(run for run in runs if run.start < count)
        return Keys(self.slots[:count], self.tokens[:count], self.positions[:count], first)


class PageEntries(NamedTuple):
    """The view as a page table: ``page[i]`` with slots ``mask[i]`` (a bit each) at ``delta[i]``."""

    page: Ints
    mask: Ints
    delta: Ints


class View:
    """The growing view of one sequence of at most ``capacity`` tokens.

    With ``copies`` it also knows the turned copies of keys that the last Repos left, and reads them
    instead where they are.
    """

    def __init__(self, capacity: int, copies: bool = False) -> None:
        self._slots = np.zeros(capacity, dtype=np.int64)
        self._births = np.zeros(capacity, dtype=np.int64)
        self._copies = np.full(capacity if copies else 0, GONE)
        self._state = Visibility()
        self.length = 0

    @property
    def state(self) -> Visibility:
        """The visibility of all ``length`` tokens."""
        if self._state.length < self.length:
            self._state = self._state.append(self.length - self._state.length)
        return self._state

    @property
    def whole(self) -> bool:
        """Whether every token has KV."""
        return not self.length or int(self._slots[: self.length].min()) != GONE

    @property
    def next_position(self) -> int:
        """The position of the next token."""
        return self._state.next_position + self.length - self._state.length

    def append(self, slots: Ints, births: Ints | None = None) -> None:
        """New tokens in ``slots``, computed at ``births`` (default: from ``next_position`` on)."""
        start, end = self.length, self.length + len(slots)
        if births is None:
            births = np.arange(self.next_position, self.next_position + len(slots))
        self._slots[start:end] = slots
        self._births[start:end] = births
        self.length = end

    def apply(self, applied: Applied, slots: Ints, moved: Moved | None = None) -> None:
        """Ops, the last so far; their refreshed tokens move to ``slots``, born where they are.

        ``moved`` are the copies that their Repos left. Tokens behind their boundary may have been
        appended already, if ``births`` were given.
        """
        assert applied.visibility.length <= self.length
        self._state = applied.visibility
        if moved is not None:
            self._copies[:] = GONE
            self.copied(*moved)
        if applied.refreshed:
            tokens = indices(applied.refreshed)
            self._slots[tokens] = slots
            if self._copies.size:
                self._copies[tokens] = GONE
            for start, end, position in applied.visibility.placed(applied.refreshed):
                self._births[start:end] = np.arange(position, position + end - start)

    def relocate(self, slots: Ints) -> None:
        """What was in slot ``i`` is in ``slots[i]`` from now on."""
        self._slots = slots[self._slots]
        self._copies = slots[self._copies]

    def unseen(self, page_size: int) -> float:
        """The share of slots, in the pages of what is seen, that are not."""
        if not self.length:
            return 0.0
        seen = self.keys().slots
        return 1 - len(seen) / (len(np.unique(seen // page_size)) * page_size)

    def copied(self, tokens: Ints, slots: Ints) -> None:
        """``tokens`` have copies in ``slots``, turned to where they stand."""
        self._copies[tokens] = slots

    def displaced(self) -> tuple[Ints, Ints]:
        """Visible tokens that stand elsewhere than born, without a copy; and how far."""
        if not self.length:
            return EMPTY, EMPTY
        keys = self.keys()
        deltas = keys.deltas
        return keys.tokens[deltas != 0], deltas[deltas != 0]

    def copies(self, tokens: Ints) -> Ints:
        """The slots of the copies that ``tokens`` have."""
        copies = self._copies[tokens] if self._copies.size else EMPTY
        slots: Ints = copies[copies != GONE]
        return slots

    def slots(self, tokens: Ints) -> Ints:
        """The slots of ``tokens``."""
        return self._slots[tokens]

    def births(self, tokens: Ints) -> Ints:
        """The positions at which ``tokens`` had their KV computed."""
        return self._births[tokens]

    def keys(self) -> Keys:
        """The visible keys, in logical order."""
        visible = [run for run in self.state.runs if run.visible]
        starts, ends, places = np.array([run[:3] for run in visible], dtype=np.int64).T
        sizes = ends - starts
        columns = np.cumsum(sizes)
        total = int(columns[-1])
        tokens = np.arange(total) + np.repeat(starts - columns + sizes, sizes)
        positions = tokens + np.repeat(places - starts, sizes)
        if self._copies.size:
            return self._keys_with_copies(tokens, positions)
        # One epoch and consecutive positions: the whole run moved by the same delta.
        deltas = places - self._births[starts]
        last = np.flatnonzero(np.append(deltas[1:] != deltas[:-1], True))
        edges = [0, *columns[last].tolist()]
        runs = map(DeltaRun, edges[:-1], edges[1:], deltas[last].tolist())
        return Keys(self._slots[tokens], tokens, positions, tuple(runs))

    def _keys_with_copies(self, tokens: Ints, positions: Ints) -> Keys:
        copies = self._copies[tokens]
        copied = copies != GONE
        deltas = np.where(copied, 0, positions - self._births[tokens])
        last = np.flatnonzero(np.append(deltas[1:] != deltas[:-1], True))
        edges = [0, *(last + 1).tolist()]
        runs = map(DeltaRun, edges[:-1], edges[1:], deltas[last].tolist())
        return Keys(np.where(copied, copies, self._slots[tokens]), tokens, positions, tuple(runs))

    def entries(self, page_size: int) -> PageEntries:
        """The page table: one entry per run of visible slots that share page and delta."""
        keys = self.keys()
        deltas = keys.deltas
        pages, offsets = keys.slots // page_size, keys.slots % page_size
        first = np.ones(len(pages), dtype=bool)
        first[1:] = (pages[1:] != pages[:-1]) | (deltas[1:] != deltas[:-1])
        starts = np.flatnonzero(first)
        masks = np.bitwise_or.reduceat(np.left_shift(1, offsets), starts)
        return PageEntries(pages[starts], masks, deltas[starts])
