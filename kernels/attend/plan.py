"""How attention is cut into work items, each of one run of equal delta.

A `KeyList` is what a sequence sees: slots in logical order, in runs of one turn each. A `Task` is a
stretch of rows that read one list, each row a part ``[low, high)`` of it. Rows are taken in blocks,
and a block's keys in pieces that never cross a run: so an item turns its queries once, and its loop
has no branch. Items are independent, which is the split over keys as well as the batch over
segments and sequences; the partial results of a row are combined afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..checks import Ints, index_table, require, send

# Columns of the item table: rows [first, first + rows) read keys [begin, end) of the list that
# starts at ``list``, their queries turned by ``turn``. Items of no rows are padding.
ITEM = ("first", "rows", "list", "begin", "end", "turn")


class Run(NamedTuple):
    """Keys ``[begin, end)`` of a list, for which queries turn by row ``turn`` of the angles."""

    begin: int
    end: int
    turn: int


class KeyList(NamedTuple):
    """Slots in logical order; the runs cover them in order."""

    slots: Ints
    runs: Sequence[Run]


class Task(NamedTuple):
    """Rows from ``start`` on that read the list of that number: row ``r`` the keys ``spans[r]``."""

    start: int
    list: int
    spans: Ints


class Sizes(NamedTuple):
    """How work is cut: an item has at most ``block_rows`` rows and ``keys`` keys."""

    block_rows: int
    keys: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A list of work items on the device; see `ITEM`.

    ``spans`` ``[rows, 2]`` are the keys each row reads; ``parts`` ``[rows, 3]`` where its results
    are: items ``[parts[0], parts[1])``, row ``parts[2]`` of each. ``block_rows`` bounds an item's
    rows, ``turns`` is one more than the highest turn, ``slot_limit`` than the highest slot.
    """

    slots: Tensor
    items: Tensor
    spans: Tensor
    parts: Tensor
    block_rows: int
    turns: int
    slot_limit: int

    @property
    def rows(self) -> int:
        """Rows of queries."""
        return len(self.spans)


class Cut(NamedTuple):
    """A plan before it goes to the device: its ``items``, and the ``parts`` of each row."""

    items: Ints
    parts: Ints


def cut(lists: Sequence[KeyList], offsets: Ints, tasks: Sequence[Task], sizes: Sizes) -> Cut:
    """The items of ``tasks``; list ``i`` starts at ``offsets[i]`` of the slot table."""
    items: list[tuple[int, ...]] = []
    parts = np.zeros((sum(len(task.spans) for task in tasks), 3), dtype=np.int64)
    for task in tasks:
        for at in range(0, len(task.spans), sizes.block_rows):
            block = task.spans[at : at + sizes.block_rows]
            owner = (task.start + at, len(block), int(offsets[task.list]))
            low, high = int(block[:, 0].min()), int(block[:, 1].max())
            opening = len(items)
            for run in lists[task.list].runs:
                pieces = _pieces(max(run.begin, low), min(run.end, high), sizes)
                items.extend((*owner, begin, end, run.turn) for begin, end in pieces)
            inside = slice(owner[0], owner[0] + len(block))
            parts[inside, :2] = opening, len(items)
            parts[inside, 2] = np.arange(len(block))
    return Cut(np.array(items, dtype=np.int64).reshape(-1, len(ITEM)), parts)


def make_plan(
    lists: Sequence[KeyList],
    tasks: Sequence[Task],
    sizes: Sizes,
    slot_limit: int,
    device: torch.device | str = "cpu",
) -> Plan:
    """A checked plan on the device.

    Raises `KernelArgumentError` for slots outside ``[0, slot_limit)``, spans outside their list, or
    runs that do not cover it.
    """
    device = torch.device(device)
    for keys in lists:
        check_list(keys)
    for task in tasks:
        require(0 <= task.list < len(lists), f"there is no key list {task.list}")
        require(task.spans.ndim == 2 and task.spans.shape[1] == 2, "spans must be [rows, 2]")
        limit = len(lists[task.list].slots)
        fits = task.spans.size == 0 or (task.spans.min() >= 0 and task.spans.max() <= limit)
        require(bool(fits), f"a row reads past the {limit} keys of its list")
    lengths = [len(keys.slots) for keys in lists]
    offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    slots = np.concatenate([np.empty(0, dtype=np.int64), *(keys.slots for keys in lists)])
    rows = sum(len(task.spans) for task in tasks)
    spans = np.zeros((rows, 2), dtype=np.int32)
    for task in tasks:
        require(0 <= task.start <= rows - len(task.spans), "a task's rows lie outside the batch")
        spans[task.start : task.start + len(task.spans)] = task.spans
    made = cut(lists, offsets, tasks, sizes)
    return Plan(
        slots=index_table(slots, slot_limit, "slots", device),
        items=send(made.items.astype(np.int32), device),
        spans=send(spans, device),
        parts=send(made.parts.astype(np.int32), device),
        block_rows=sizes.block_rows,
        turns=1 + max((run.turn for keys in lists for run in keys.runs), default=0),
        slot_limit=slot_limit,
    )


def check_list(keys: KeyList) -> None:
    """Raises `KernelArgumentError` unless the runs cover the list, in order and without gaps."""
    edge = 0
    for run in keys.runs:
        require(run.begin == edge and run.end > edge, "runs must cover a key list in order")
        require(run.turn >= 0, f"there is no turn {run.turn}")
        edge = run.end
    require(edge == len(keys.slots), f"runs end at {edge}, the list at {len(keys.slots)}")


def balanced(keys: int, heads: int, processors: int, block_rows: int) -> Sizes:
    """Sizes that give each of ``processors`` about `WAVES` items of ``keys`` keys in all."""
    items = max(1, processors * WAVES // heads)
    each = -(-keys // (items * GRAIN)) * GRAIN
    return Sizes(block_rows, min(max(each, SHORTEST), LONGEST))


# Items per processor; keys an item is rounded to, and has at least and at most: see README.md for
# the measurement.
WAVES = 2
GRAIN, SHORTEST, LONGEST = 128, 128, 4096


def _pieces(begin: int, end: int, sizes: Sizes) -> list[tuple[int, int]]:
    """``[begin, end)`` in near-equal pieces of at most ``sizes.keys``; none when it is empty."""
    if end <= begin:
        return []
    count = -(-(end - begin) // sizes.keys)
    step = -(-(end - begin) // (count * GRAIN)) * GRAIN
    return [(at, min(at + step, end)) for at in range(begin, end, step)]
