"""The cache: pages, the tree of what lies in them, and who reads it.

Room is made in this order:

1. what no conversation reads any more: tokens that were dropped, or refreshed, on every path that
   leads on from them, more than ``restore_passes`` passes ago (a Restore finds the younger ones);
2. the least recently used leaves of finished requests.

Nothing that a running request reads, or will read, is taken. The tokens of 1 stay in the tree
without their KV, as a path to those behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from akv_rsi.engine.node import EMPTY, Node, indices
from akv_rsi.engine.pool import Ints, Lease, PagePool
from akv_rsi.engine.radix import Bools, RadixTree
from akv_rsi.visibility import Visibility


class Reader(Protocol):
    """A running request, as the cache knows it."""

    @property
    def lease(self) -> Lease | None:
        """What it may write to; none while it is let in."""
        ...

    @property
    def node(self) -> Node:
        """Where it stands in the tree."""
        ...

    def reads(self) -> Sequence[Ints]:
        """The slots it reads or will read."""
        ...


class Cache:
    """Pages and tree; ``readers`` are the running requests, ``dropped_pages`` what 1 freed."""

    def __init__(self, pool: PagePool, restore_passes: int) -> None:
        self.pool = pool
        self.tree = RadixTree(pool)
        self.readers: list[Reader] = []
        self.dropped_pages = 0
        self._restore_passes = restore_passes
        self._stripped = 0

    def make_room(self, pages: int) -> bool:
        """Whether ``pages`` are free, after evicting what it takes."""
        if self.pool.free_pages < pages and self.tree.now - self._stripped >= self._restore_passes:
            self._stripped = self.tree.now
            self.tree.strip(dead := self._dead_pages())
            self.dropped_pages += int(dead.sum())
        return self.tree.evict(pages)

    def lease(self, count: int, after: int | None) -> Lease | None:
        """``count`` slots, if possible right behind slot ``after``; None when there is no room."""
        if not self.make_room(self.pool.pages_needed(count, after)):
            return None
        return self.pool.lease(count, after)

    def extend(self, lease: Lease, count: int) -> bool:
        """``count`` slots more; whether there was room for them."""
        if not self.make_room(self.pool.pages_needed(count, lease.last)):
            return False
        self.pool.extend(lease, count)
        return True

    def check(self) -> None:
        """Asserts every invariant of pages, tree and readers."""
        leases = [reader.lease.pages for reader in self.readers if reader.lease is not None]
        self.pool.check([*(node.pages for node in self.tree.nodes()), *leases])
        self.tree.check([reader.node for reader in self.readers])

    def _dead_pages(self) -> Bools:
        """Pages in use that neither a request nor the end of any path reads, page by page."""
        # The last cell stands for `GONE`.
        live = np.zeros(len(self.pool.refs) * self.pool.page_size + 1, dtype=bool)
        for root in self.tree.roots():
            self._mark(root, live)
        for reader in self.readers:
            for slots in reader.reads():
                live[slots] = True
        dead = ~live[:-1].reshape(-1, self.pool.page_size).any(1) & (self.pool.refs > 0)
        for reader in self.readers:
            if reader.lease is not None:
                dead[reader.lease.pages] = False
        return dead

    def _mark(self, root: Node, live: Bools) -> None:
        """Marks the slots that are read from the leaves, and from before ops that are young."""
        oldest = self.tree.now - self._restore_passes
        stack = [(root, EMPTY, Visibility())]
        while stack:
            node, slots, state = stack.pop()
            if node.applied is None:
                slots = np.concatenate((slots, node.slots))
            else:
                slots, state = slots.copy(), node.applied.visibility
                slots[indices(node.applied.refreshed)] = node.slots
            below = node.children.values()
            if not below or any(n.applied is not None and n.since > oldest for n in below):
                for start, end in state.append(len(slots) - state.length).visible_ranges:
                    live[slots[start:end]] = True
            stack.extend((child, slots, state) for child in below)
