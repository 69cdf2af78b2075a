"""Defragmentation: what is still read moves out of pages that are mostly dead, and frees them.

It happens between two passes in which nothing prefills, a bounded number of tokens at a time. A
slot is dead when neither a running request nor the end of any path reads it. Moving a unit changes
its slot in the tree and in every view at once; KV that is being written (leased) stays put.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from akv_rsi.engine.node import EMPTY, Bools, Node, way_to
from akv_rsi.engine.pool import Ints, PagePool
from akv_rsi.engine.radix import RadixTree
from akv_rsi.engine.view import View

# A sequence, and a page, is worth it above this share of dead slots.
DEAD = 0.4
# Tokens moved at a time, at most.
BUDGET = 2048


class Standing(Protocol):
    """What has a place in the tree and sees it."""

    @property
    def node(self) -> Node:
        """Where it stands."""
        ...

    @property
    def view(self) -> View:
        """What it sees."""
        ...


def most_dead(standing: Sequence[Standing], page_size: int) -> Standing | None:
    """The one whose pages have the largest share of slots it does not see, if above `DEAD`."""
    shares = [one.view.unseen(page_size) for one in standing]
    worst = max(range(len(shares)), key=shares.__getitem__, default=-1)
    return standing[worst] if worst >= 0 and shares[worst] > DEAD else None


def compact(
    pool: PagePool,
    tree: RadixTree,
    standing: Sequence[Standing],
    chosen: Standing,
    live: Bools,
    fixed: Bools,
) -> int:
    """Moves live units on the way to ``chosen`` out of sparse pages; how many.

    ``live`` marks slots and is kept up to date, ``fixed`` the pages from which nothing may move;
    all of ``standing`` learn of the move. Nothing moves when the free pages do not suffice.
    """
    size = pool.page_size
    used = live[: len(pool.refs) * size].reshape(-1, size).sum(1)
    sparse = (used < (1 - DEAD) * size) & ~fixed
    held = np.concatenate([EMPTY, *(step.node.held for step in way_to(chosen.node))])
    held = held[held >= 0]
    old: Ints = held[live[held] & sparse[held // size]][:BUDGET]
    if not old.size or pool.pages_needed(len(old)) > pool.free_pages:
        return 0
    lease = pool.lease(len(old))
    new = lease.take(len(old))
    pool.copy(old, new)
    # The last cell stands for a slot that is gone.
    slots = np.arange(len(pool.refs) * size + 1)
    slots[-1] = -1
    slots[old] = new
    tree.relocate(slots)
    for one in standing:
        one.view.relocate(slots)
    pool.close(lease)
    live[old], live[new] = False, True
    return len(old)
