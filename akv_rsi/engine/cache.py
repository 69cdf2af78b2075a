"""The cache: pages, the tree of what lies in them, and who reads it.

Room is made in this order:

1. what no conversation reads any more: tokens that were dropped, or refreshed, on every path that
   leads on from them, more than ``restore_passes`` passes ago (a Restore finds the younger ones);
2. position versions (copy mode) that no running request reads, the oldest Repos first;
3. the least recently used leaves of finished requests.

Nothing that a running request reads, or will read, is taken. The tokens of 1 stay in the tree
without their KV, as a path to those behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from akv_rsi.config import EngineConfig
from akv_rsi.engine.defrag import compact, most_dead
from akv_rsi.engine.node import EMPTY, Bools, Node, indices
from akv_rsi.engine.pool import Ints, Lease, PagePool
from akv_rsi.engine.radix import RadixTree
from akv_rsi.engine.view import View
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

    @property
    def view(self) -> View:
        """What it sees."""
        ...

    def reads(self) -> Sequence[Ints]:
        """The slots it reads or will read."""
        ...


class Cache:
    """Pages and tree; ``readers`` are the running requests.

    ``copies``: a Repos leaves turned copies. ``dropped_pages`` were freed by 1, ``turned_pages`` by
    2; ``relocated`` tokens were moved by defragmentation, ``gathered`` ones copied from many short
    runs into dense pages for a sequence that decodes.
    """

    def __init__(self, pool: PagePool, config: EngineConfig) -> None:
        self.pool = pool
        self.tree = RadixTree(pool)
        self.copies = config.repos_mode == "copy"
        self.readers: list[Reader] = []
        self.dropped_pages = self.turned_pages = 0
        self.relocated = self.gathered = 0
        self._restore_passes = config.restore_passes
        self._stripped = self._defragmented = 0
        self._lingering: list[Ints] = []

    def linger(self, pages: Ints) -> None:
        """Keeps ``pages`` as they are for the pass that is being planned: it reads them."""
        self.pool.retain(pages)
        self._lingering.append(pages)

    def make_room(self, pages: int) -> bool:
        """Whether ``pages`` are free, after evicting what it takes. No pass is planned yet."""
        while self._lingering:
            self.pool.release(self._lingering.pop())
        if self.pool.free_pages < pages and self.tree.now - self._stripped >= self._restore_passes:
            self._stripped = self.tree.now
            self._strip(self._live_slots())
        if self.pool.free_pages < pages and self.copies:
            self._evict_moved(pages)
        return self.tree.evict(pages)

    def defragment(self, readers: Sequence[Reader]) -> None:
        """Moves what one of ``readers`` sees out of pages that are mostly dead, if it is time."""
        if self.tree.now - self._defragmented < self._restore_passes:
            return
        self._defragmented = self.tree.now
        chosen = most_dead(readers, self.pool.page_size)
        if chosen is not None:
            live, fixed = self._live_slots(), self._leased()
            moved = compact(self.pool, self.tree, self.readers, chosen, live, fixed)
            self.relocated += moved
            if moved:
                self._strip(live)

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

    def disown(self, pages: Ints) -> None:
        """Lets go of the KV in ``pages`` that no running request reads: it may be no numbers."""
        spoilt = np.zeros(len(self.pool.refs), dtype=bool)
        spoilt[pages] = True
        read = self._read_slots()[:-1].reshape(-1, self.pool.page_size).any(1)
        self.tree.strip(spoilt & ~read)

    def check(self) -> None:
        """Asserts every invariant of pages, tree and readers."""
        leases = [reader.lease.pages for reader in self.readers if reader.lease is not None]
        self.pool.check([*(node.pages for node in self.tree.nodes()), *leases, *self._lingering])
        self.tree.check([reader.node for reader in self.readers])

    def _evict_moved(self, pages: int) -> None:
        """Drops position versions that no request reads until ``pages`` are free."""
        live, before = self._read_slots(), self.pool.free_pages
        moved = [node for node in self.tree.nodes() if node.moved and node.moved.slots.size]
        for node in sorted(moved, key=lambda node: node.since):
            if self.pool.free_pages >= pages:
                break
            if node.moved is not None and not live[node.moved.slots].any():
                self.tree.forget_moved(node)
        self.turned_pages += self.pool.free_pages - before

    def _read_slots(self) -> Bools:
        """The slots that running requests read, slot by slot; the last cell stands for `GONE`."""
        live = np.zeros(len(self.pool.refs) * self.pool.page_size + 1, dtype=bool)
        for reader in self.readers:
            for slots in reader.reads():
                live[slots] = True
        return live

    def _live_slots(self) -> Bools:
        """The slots that a request, or the end of any path, reads, slot by slot."""
        live = self._read_slots()
        for root in self.tree.roots():
            self._mark(root, live)
        return live

    def _leased(self) -> Bools:
        """Pages that running requests write to."""
        leased = np.zeros(len(self.pool.refs), dtype=bool)
        for reader in self.readers:
            if reader.lease is not None:
                leased[reader.lease.pages] = True
        return leased

    def _strip(self, live: Bools) -> None:
        """Frees the pages in which nothing is ``live``."""
        read = live[:-1].reshape(-1, self.pool.page_size).any(1)
        dead = ~read & (self.pool.refs > 0) & ~self._leased()
        self.tree.strip(dead)
        self.dropped_pages += int(dead.sum())

    def _mark(self, root: Node, live: Bools) -> None:
        """Marks the slots that are read from the leaves, and from before ops that are young.

        Copies are marked all: their time comes after that of dropped tokens.
        """
        oldest = self.tree.now - self._restore_passes
        stack = [(root, EMPTY, Visibility())]
        while stack:
            node, slots, state = stack.pop()
            if node.applied is None:
                slots = np.concatenate((slots, node.slots))
            else:
                slots, state = slots.copy(), node.applied.visibility
                slots[indices(node.applied.refreshed)] = node.slots
            if node.moved is not None:
                live[node.moved.slots] = True
            below = node.children.values()
            if not below or any(n.applied is not None and n.since > oldest for n in below):
                for start, end in state.append(len(slots) - state.length).visible_ranges:
                    live[slots[start:end]] = True
            stack.extend((child, slots, state) for child in below)
