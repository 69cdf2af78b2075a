"""Which leaf of the tree goes next: the least recently used."""

from __future__ import annotations

import heapq
from itertools import count

from akv_rsi.engine.node import Node


class LeafQueue:
    """Leaves that nobody stands on, by last use.

    A leaf that is used, or gets children, stays in the queue as an entry that no longer counts.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Node]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, node: Node, nodes: int) -> None:
        """Offers ``node``, if it is a free leaf, in a tree of so many ``nodes``."""
        if node.is_free_leaf:
            heapq.heappush(self._heap, (node.stamp, next(self._order), node))
        if len(self._heap) > 2 * nodes + 64:  # mostly nodes that were used again since
            self._heap = [entry for entry in self._heap if _counts(entry)]
            heapq.heapify(self._heap)

    def pop(self) -> Node | None:
        """The least recently used leaf, if there is any."""
        while self._heap:
            entry = heapq.heappop(self._heap)
            if _counts(entry):
                return entry[2]
        return None


def _counts(entry: tuple[int, int, Node]) -> bool:
    stamp, _, node = entry
    return node.stamp == stamp and node.is_free_leaf
