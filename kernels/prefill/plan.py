"""Which rows and key lists a long prefill has, and in which order its blocks run.

Key lists are staged first: gathered from their slots into one dense list after another, each key
turned to where it is seen. That costs each key one read and one write, and a row block then reads
contiguous tiles by bulk copies, without runs: worth it as soon as a list is read by some hundred
rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..attend.plan import KeyList, Task, check_list
from ..checks import Ints, require, send
from ..move.triton import Moves, make_gather

# Columns of the block table: rows [first, first + rows) read the stage from its row ``list`` on.
BLOCK = ("first", "rows", "list")


@dataclass(frozen=True, slots=True)
class StagedPlan:
    """Row blocks ``blocks`` (see `BLOCK`), longest first, ``spans`` ``[rows, 2]`` as in `Plan`.

    ``moves`` stage ``keys`` keys of all lists; ``block_rows`` rows is the most a block has.
    """

    moves: Moves
    blocks: Tensor
    spans: Tensor
    keys: int
    block_rows: int
    windowed: bool

    @property
    def rows(self) -> int:
        """Rows of queries."""
        return len(self.spans)


def make_staged_plan(
    lists: Sequence[KeyList],
    tasks: Sequence[Task],
    block_rows: int,
    device: torch.device | str = "cpu",
) -> StagedPlan:
    """A checked plan; the runs of its lists name turns of *keys*, to where they are seen.

    Raises `KernelArgumentError` for spans outside their list, or runs that do not cover it.
    """
    device = torch.device(device)
    for keys in lists:
        check_list(keys)
    offsets = np.cumsum([0, *(len(keys.slots) for keys in lists)])
    rows = sum(len(task.spans) for task in tasks)
    spans = np.zeros((rows, 2), dtype=np.int64)
    blocks: list[tuple[int, int, int, int]] = []
    for task in tasks:
        require(0 <= task.list < len(lists), f"there is no key list {task.list}")
        limit, count = len(lists[task.list].slots), len(task.spans)
        fits = not count or (task.spans.min() >= 0 and task.spans.max() <= limit)
        require(bool(fits), f"a row reads past the {limit} keys of its list")
        require(0 <= task.start <= rows - count, "a task's rows lie outside the batch")
        spans[task.start : task.start + count] = task.spans
        for at in range(0, count, block_rows):
            part = task.spans[at : at + block_rows]
            work = int(part[:, 1].max() - part[:, 0].min())
            blocks.append((work, task.start + at, len(part), int(offsets[task.list])))
    blocks.sort(key=lambda block: -block[0])
    table = np.array([block[1:] for block in blocks], dtype=np.int32).reshape(-1, len(BLOCK))
    return StagedPlan(
        moves=_staging(lists, device),
        blocks=send(table, device),
        spans=send(spans.astype(np.int32), device),
        keys=int(offsets[-1]),
        block_rows=block_rows,
        windowed=bool(spans[:, 0].any()),
    )


def _staging(lists: Sequence[KeyList], device: torch.device) -> Moves:
    slots: list[Ints] = [np.empty(0, dtype=np.int64)]
    turns: list[Ints] = [np.empty(0, dtype=np.int64)]
    for keys in lists:
        slots.append(keys.slots)
        turns.extend(np.full(run.end - run.begin, run.turn) for run in keys.runs)
    return make_gather(np.concatenate(slots), np.concatenate(turns), device)
