"""Who sits in which dense group: sequences that decode side by side, from copies of their keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from akv_rsi.engine.attention import Segment
from akv_rsi.engine.batch import Batch, Group
from akv_rsi.engine.dense import DenseGroup
from akv_rsi.engine.sequence import Sequence

# A group is padded to its longest member; one with this many times the keys starts another.
STRETCH = 1.25
# Columns a group keeps for tokens to come, at most.
ROOM = 64
# A group with fewer of its members alive, or one too many, is copied anew.
ALIVE = 0.2
MAX_GROUPS = 6


G = TypeVar("G", bound=Group)


@dataclass(slots=True)
class Seating(Generic[G]):
    """A dense group and the sequence in each of its rows; finished ones leave their row empty."""

    group: G
    members: list[Sequence | None]

    @property
    def alive(self) -> int:
        """Rows in use."""
        return sum(member is not None for member in self.members)


class Seatings:
    """All groups; together they hold at most ``columns`` keys."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._seatings: list[Seating[DenseGroup]] = []

    def __iter__(self) -> Iterator[Seating[DenseGroup]]:
        return iter(self._seatings)

    def __contains__(self, sequence: Sequence) -> bool:
        return any(sequence in seating.members for seating in self._seatings)

    def remove(self, sequence: Sequence) -> None:
        """Leaves its seat empty."""
        for seating in self._seatings:
            seating.members = [None if m is sequence else m for m in seating.members]

    def clear(self) -> None:
        """Drops groups that are full, sparse or many; their sequences go on from the pool."""
        keep = [
            seating
            for seating in self._seatings
            if seating.alive >= max(1, ALIVE * len(seating.members)) and seating.group.has_room
        ]
        self._seatings = keep if len(keep) <= MAX_GROUPS else []

    def renew(self) -> None:
        """KV has moved to other slots, which does not concern copies."""

    def seat(self, batch: Batch, complete: Iterable[tuple[Sequence, Segment]]) -> None:
        """Copies the keys of sequences that have come to decoding into dense groups."""
        free = self._columns - sum(seating.group.columns for seating in self._seatings)
        for bucket in _buckets(complete):
            room = min(ROOM, max(sequence.room for sequence, _ in bucket))
            free -= len(bucket) * (len(bucket[-1][1].keys.slots) + room)
            if free < 0:
                break
            group = batch.seat([segment for _, segment in bucket], room)
            self._seatings.append(Seating(group, [sequence for sequence, _ in bucket]))


def _buckets(
    complete: Iterable[tuple[Sequence, Segment]],
) -> list[list[tuple[Sequence, Segment]]]:
    """The sequences by their number of keys, cut where padding would cost too much."""
    buckets: list[list[tuple[Sequence, Segment]]] = []
    for entry in sorted(complete, key=lambda entry: len(entry[1].keys.slots)):
        size = len(entry[1].keys.slots)
        if buckets and size <= STRETCH * len(buckets[-1][0][1].keys.slots):
            buckets[-1].append(entry)
        else:
            buckets.append([entry])
    return buckets
