"""Who runs in the next pass: continuous batching with chunked prefill.

Decoding sequences get a row each; the rest of the budget goes to prefilling ones, oldest first.
Rows enter the tree as they are planned, so a later sequence of the same pass already shares what an
earlier one computes in it.

All room is made before the first row is planned, since what a planned row reads must stay. Where
there is none, the youngest sequence waits until others are done; one that runs alone and still
lacks room starts over on an empty cache, which holds any request that is let in.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator

import numpy as np

from akv_rsi.config import EngineConfig
from akv_rsi.engine.attention import Segment
from akv_rsi.engine.backend import Backend
from akv_rsi.engine.batch import Batch
from akv_rsi.engine.cache import Cache
from akv_rsi.engine.model import Model
from akv_rsi.engine.prefill import plan
from akv_rsi.engine.sequence import Sequence
from akv_rsi.errors import ContextLimit


class Scheduler:
    """Queues of sequences, and the pass made of them."""

    def __init__(self, model: Model, config: EngineConfig, cache: Cache, backend: Backend) -> None:
        self._model = model
        self._config = config
        self._cache = cache
        self.preemptions = 0
        self._waiting: deque[Sequence] = deque()
        self._prefilling: list[Sequence] = []
        self._decoding: list[Sequence] = []
        self._closing: list[Sequence] = []
        self._backend = backend
        self._seatings = backend.seatings()

    def __iter__(self) -> Iterator[Sequence]:
        """All unfinished sequences."""
        yield from (*self._decoding, *self._prefilling, *self._waiting)

    @property
    def busy(self) -> bool:
        """Whether anything is unfinished."""
        return bool(self._waiting) or self.running > 0

    @property
    def running(self) -> int:
        """Admitted sequences."""
        return len(self._prefilling) + len(self._decoding)

    def add(self, sequence: Sequence) -> None:
        """Puts a sequence at the end of the queue."""
        self._waiting.append(sequence)

    def admit(self) -> list[tuple[Sequence, ContextLimit]]:
        """Lets waiting sequences in while there is room; returns those that can never fit."""
        refused = []
        while self._waiting and self.running < self._config.max_batch:
            sequence = self._waiting[0]
            fits = self._fits(sequence)
            if fits and sequence.admit():
                self._prefilling.append(self._waiting.popleft())
            elif self._closing:
                self._release_closing()
            elif self.running:
                break
            elif not fits or not self._admit_alone(sequence):
                pages = self._cache.pool.pages
                error = ContextLimit(f"it needs more than the pool's {pages} pages")
                refused.append((self._waiting.popleft(), error))
        return refused

    def plan(self, whole: bool = False) -> tuple[Batch, list[Sequence]]:
        """The next pass, and the sequences its kept logits belong to, row by row.

        ``whole``: without a budget, and with the logits of every computed token.
        """
        self._secure()
        if all(one.known - one.view.length <= 1 for one in self._prefilling):
            relocated = self._cache.relocated
            self._cache.defragment((*self._decoding, *self._prefilling))
            if self._cache.relocated > relocated:
                self._seatings.renew()
        self._cache.tree.now += 1
        batch = self._backend.batch()
        wanted = self._plan_decodes(batch)
        limit = sys.maxsize if whole else self._config.chunk_tokens
        complete: list[tuple[Sequence, Segment]] = []
        for sequence in self._prefilling:
            if batch.size >= limit:
                break
            rows = plan(sequence, batch, limit - batch.size)
            if whole:
                batch.keep([row for part in rows for row in range(part.start, part.stop)])
            if rows and sequence.complete:
                if sequence.request.attention:
                    sequence.watch(batch.segments[-1])
                else:
                    complete.append((sequence, batch.segments[-1]))
                wanted.append(sequence)
                if not whole:
                    batch.keep([rows[-1].stop - 1])
        self._seatings.seat(batch, complete)
        return batch, wanted

    def advance(self, sequence: Sequence) -> None:
        """Queues an admitted sequence by what it needs next."""
        if not sequence.decodes:
            self.remove(sequence)
            self._prefilling.append(sequence)
        elif sequence in self._prefilling:
            self._prefilling.remove(sequence)
            self._decoding.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Takes a sequence out of every queue and off its seat."""
        self._dequeue(sequence)
        self._seatings.remove(sequence)

    def _dequeue(self, sequence: Sequence) -> None:
        for queue in (self._waiting, self._prefilling, self._decoding):
            if sequence in queue:
                queue.remove(sequence)

    def close(self, sequence: Sequence) -> None:
        """Takes a finished sequence out, its KV into the tree.

        Its last token has none yet. While its row in a dense group lives, it is computed along with
        the next pass: the next call of the same conversation then finds all of it.
        """
        fits = sequence.upcoming_position < self._model.max_positions
        if sequence in self._seatings and sequence.decodes and fits:
            self._dequeue(sequence)
            self._closing.append(sequence)
        else:
            self.remove(sequence)
            sequence.release(keep=True)

    def _fits(self, sequence: Sequence) -> bool:
        """Whether an empty pool would hold all it can ever need."""
        count = len(sequence.tokens) + sequence.timeline.refreshed(0)
        if self._cache.copies and (last := sequence.timeline.last_repos(len(sequence.tokens))) >= 0:
            count += sequence.timeline.applied[last].visibility.attended
        return self._cache.pool.pages_needed(count) <= self._cache.pool.pages

    def _admit_alone(self, sequence: Sequence) -> bool:
        """Lets it in on an empty cache: half-used pages of its own past stand in its way."""
        self._cache.make_room(self._cache.pool.pages)
        if not sequence.admit():
            return False
        self._waiting.remove(sequence)
        self._prefilling.append(sequence)
        return True

    def _secure(self) -> None:
        """Leases what the next pass needs; whoever finds no room waits, the youngest first."""
        for sequence in list(self._prefilling):
            if not sequence.secure():
                self._preempt(sequence)
        short = [one for one in (*self._closing, *self._decoding) if one.short]
        for sequence in sorted(short, key=lambda one: one.number):
            while sequence.short and not sequence.grow():
                self._make_way()

    def _make_way(self) -> None:
        """Something gives up its pages for others to go on."""
        if self._closing:
            self._release_closing()
        else:
            self._preempt(max((*self._decoding, *self._prefilling), key=lambda one: one.number))

    def _preempt(self, sequence: Sequence) -> None:
        """Puts a running sequence back to the head of the queue; its KV may be evicted."""
        self.remove(sequence)
        sequence.release(keep=True)
        self._waiting.appendleft(sequence)
        self.preemptions += 1

    def _plan_decodes(self, batch: Batch) -> list[Sequence]:
        self._seatings.clear()
        seated = {id(member) for seating in self._seatings for member in seating.members}
        self._prefilling[:0] = [member for member in self._decoding if id(member) not in seated]
        self._decoding = [member for member in self._decoding if id(member) in seated]
        wanted: list[Sequence] = []
        for seating in self._seatings:
            alive = [(row, m) for row, m in enumerate(seating.members) if m is not None]
            fed = np.array([member.feed() for _, member in alive], dtype=np.int64)
            rows = batch.add_rows(fed[:, 0], fed[:, 1], fed[:, 2])
            seating.group.begin(np.array([row for row, _ in alive]), fed)
            batch.groups.append((seating.group, rows))
            for row, (_, member) in enumerate(alive, rows.start):
                if member not in self._closing:
                    batch.keep([row])
                    wanted.append(member)
        self._release_closing()
        return wanted

    def _release_closing(self) -> None:
        closing, self._closing = self._closing, []
        for sequence in closing:
            self.remove(sequence)
            sequence.release(keep=True)
