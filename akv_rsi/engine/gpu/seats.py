"""Who decodes from the tables, and from which slots: those of the view, or dense copies of them.

A decode step turns its queries once for each run of equal delta, so many short runs cost more than
the keys in them. What they cost over the steps to come is weighed against one turned copy of the
sequence's keys, made from where they were born. Copies lie in pages of the sequence's own lease:
nobody else finds them, and they go with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np

from akv_rsi.engine.attention import Segment
from akv_rsi.engine.batch import Batch
from akv_rsi.engine.gpu.batch import DeviceBatch, PagedGroup
from akv_rsi.engine.gpu.tables import DecodeTables
from akv_rsi.engine.pool import Ints
from akv_rsi.engine.seating import Seating
from akv_rsi.engine.sequence import Sequence
from akv_rsi.engine.view import DeltaRun, Keys, View

# Fewer runs cost a step less than a tenth. A step saves, for each run, a part of what copying a key
# costs: one in 20 as measured, one in 16 since a sequence may stop early. See docs/benchmarks.
MANY_RUNS = 64
KEYS_REPAID = 16


class PagedSeatings:
    """Who has which row of the tables. All of them decode in one step."""

    def __init__(self, group: PagedGroup) -> None:
        self._group = group
        self._members: dict[int, Sequence] = {}
        self._copies: dict[int, Ints] = {}

    def __iter__(self) -> Iterator[Seating[PagedGroup]]:
        if self._members:
            rows = range(self._tables.size)
            yield Seating(self._group, [self._members.get(row) for row in rows])

    def __contains__(self, sequence: Sequence) -> bool:
        return any(member is sequence for member in self._members.values())

    @property
    def _tables(self) -> DecodeTables:
        return self._group.tables

    def remove(self, sequence: Sequence) -> None:
        """Leaves its row free."""
        for row in [row for row, member in self._members.items() if member is sequence]:
            del self._members[row]
            self._tables.free(row)
            if row in self._copies:  # which a step that is planned already still reads
                sequence.cache.linger(self._copies.pop(row))

    def clear(self) -> None:
        """Rows are free as soon as they are left: there is nothing to clear."""

    def renew(self) -> None:
        """KV has moved to other slots: the tables learn where."""
        self._tables.renew()

    def seat(self, batch: Batch, complete: Iterable[tuple[Sequence, Segment]]) -> None:
        """Gives rows to sequences that have come to decoding, as long as there are any."""
        assert isinstance(batch, DeviceBatch)
        for sequence, segment in complete:
            row, source = self._tables.vacant(), sequence.view.keys
            if row is None or len(segment.keys.slots) + sequence.room >= self._tables.capacity:
                continue
            keys, fresh = segment.keys, segment.stop - segment.start
            old = keys.head(len(keys.slots) - fresh)
            crowded = self._is_crowded(sequence, old)
            if not self._tables.fits(2 if crowded else len(keys.runs)):
                continue
            if crowded:
                slots = self._gathered(sequence, batch, old)
                self._copies[row] = sequence.cache.pool.pages_of(slots)
                source = partial(_in_front, slots, sequence.view)
                keys = source()
            self._tables.place(row, keys, source)
            self._members[row] = sequence
            if fresh == 1:
                batch.asked.append((row, segment))

    def _is_crowded(self, sequence: Sequence, old: Keys) -> bool:
        """Whether copies of these keys repay themselves, and all that run leave pages for them."""
        keys, runs = len(old.slots), len(old.runs)
        if sequence.cache.pool.layers[0].keys.scales is not None:
            return False  # turned codes would be rounded once more
        if runs < MANY_RUNS or keys > KEYS_REPAID * runs * sequence.room:
            return False
        pool, running = sequence.cache.pool, (sequence, *self._members.values())
        needed = sum(pool.pages_needed(one.room) for one in running) + pool.pages_needed(keys)
        return needed <= pool.free_pages

    def _gathered(self, sequence: Sequence, batch: DeviceBatch, old: Keys) -> Ints:
        """Has ``old`` copied to slots of the sequence's lease."""
        count, cache = len(old.slots), sequence.cache
        assert sequence.lease is not None
        cache.pool.extend(sequence.lease, count)
        slots = sequence.lease.take(count)
        batch.add_copies(old.slots, slots, old.deltas)
        cache.gathered += count
        return slots


def _in_front(slots: Ints, view: View) -> Keys:
    """What ``view`` shows, its first keys read from copies in ``slots`` that stand where seen."""
    keys, count = view.keys(), len(slots)
    rest = [DeltaRun(max(start, count), end, d) for start, end, d in keys.runs if end > count]
    return Keys(
        np.concatenate((slots, keys.slots[count:])),
        keys.tokens,
        keys.positions,
        (DeltaRun(0, count, 0), *rest),
    )
