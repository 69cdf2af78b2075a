"""Who runs in the next pass: continuous batching with chunked prefill.

Decoding sequences get a row each; the rest of the budget goes to prefilling ones, oldest first.
Rows enter the tree as they are planned, so a later sequence of the same pass already shares what an
earlier one computes in it.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from akv_rsi.engine.batch import Batch
from akv_rsi.engine.dense import DenseGroup
from akv_rsi.engine.model import Model
from akv_rsi.engine.pool import PagePool
from akv_rsi.engine.radix import RadixTree
from akv_rsi.engine.sequence import Sequence
from akv_rsi.errors import ContextLimit

# A group is padded to its longest member; a newcomer this much longer starts another.
STRETCH = 1.25
# Columns a group keeps for tokens to come, and the share of members that must be alive.
ROOM = 64
ALIVE = 0.75
MAX_GROUPS = 4


@dataclass(slots=True)
class Seating:
    """A dense group and the sequence in each of its rows; finished ones leave their row empty."""

    group: DenseGroup
    members: list[Sequence | None]

    @property
    def alive(self) -> int:
        """Rows in use."""
        return sum(member is not None for member in self.members)


class Scheduler:
    """Queues of sequences, and the pass made of them."""

    def __init__(self, model: Model, pool: PagePool, tree: RadixTree) -> None:
        self._model = model
        self._pool = pool
        self._tree = tree
        self._waiting: deque[Sequence] = deque()
        self._prefilling: list[Sequence] = []
        self._decoding: list[Sequence] = []
        self._seatings: list[Seating] = []

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
        while self._waiting and self.running < self._model.config.max_batch:
            sequence = self._waiting[0]
            if sequence.admit(self._pool):
                self._prefilling.append(self._waiting.popleft())
            elif self.running:
                break
            else:
                pages = self._pool.pages
                error = ContextLimit(f"it needs more than the pool's {pages} pages")
                refused.append((self._waiting.popleft(), error))
        return refused

    def plan(self, whole: bool = False) -> tuple[Batch, list[Sequence]]:
        """The next pass, and the sequences its kept logits belong to, row by row.

        ``whole``: without a budget, and with the logits of every computed token.
        """
        batch = Batch(self._pool, self._model.rotary)
        wanted = self._plan_decodes(batch)
        limit = sys.maxsize if whole else self._model.config.chunk_tokens
        for sequence in self._prefilling:
            if batch.size >= limit:
                break
            rows = sequence.plan(batch, limit - batch.size)
            if whole:
                batch.keep([row for part in rows for row in range(part.start, part.stop)])
            elif sequence.view.length == sequence.known:
                batch.keep([rows[-1].stop - 1])
                wanted.append(sequence)
        return batch, wanted

    def advance(self, sequence: Sequence) -> None:
        """Queues an admitted sequence by what it needs next."""
        queue = self._decoding if sequence.decodes else self._prefilling
        if sequence not in queue:
            self.remove(sequence)
            queue.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Takes a sequence out of every queue."""
        for queue in (self._waiting, self._prefilling, self._decoding):
            if sequence in queue:
                queue.remove(sequence)
        for seating in self._seatings:
            seating.members = [None if m is sequence else m for m in seating.members]

    def _plan_decodes(self, batch: Batch) -> list[Sequence]:
        self._seat()
        wanted: list[Sequence] = []
        for seating in self._seatings:
            alive = [(row, m) for row, m in enumerate(seating.members) if m is not None]
            fed = np.array([member.feed() for _, member in alive], dtype=np.int64)
            rows = batch.add_rows(fed[:, 0], fed[:, 1], fed[:, 2])
            seating.group.begin(np.array([row for row, _ in alive]), fed[:, 1])
            batch.groups.append((seating.group, rows))
            batch.keep(range(rows.start, rows.stop))
            wanted.extend(member for _, member in alive)
        return wanted

    def _seat(self) -> None:
        """Gives every decoding sequence a row, rebuilding groups that are full, sparse or many."""
        self._seatings = [
            seating
            for seating in self._seatings
            if seating.alive >= max(1, ALIVE * len(seating.members)) and seating.group.has_room
        ]
        seated = {id(m) for seating in self._seatings for m in seating.members}
        loose = [sequence for sequence in self._decoding if id(sequence) not in seated]
        if loose and len(self._seatings) >= MAX_GROUPS:
            self._seatings, loose = [], list(self._decoding)
        for members in _buckets(loose):
            room = min(ROOM, max(member.room for member in members))
            ropes = [layer.rope for layer in self._model.layers]
            keys = [member.view.keys() for member in members]
            group = DenseGroup(self._pool, self._model.rotary, ropes, keys, room)
            self._seatings.append(Seating(group, list(members)))


def _buckets(sequences: Iterable[Sequence]) -> list[list[Sequence]]:
    """The sequences by length, cut where padding would cost too much."""
    buckets: list[list[Sequence]] = []
    for sequence in sorted(sequences, key=lambda s: s.view.length):
        if buckets and sequence.view.length <= STRETCH * buckets[-1][0].view.length:
            buckets[-1].append(sequence)
        else:
            buckets.append([sequence])
    return buckets
