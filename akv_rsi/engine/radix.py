"""The radix tree of cached KV: its paths spell tokens *and* ops.

The key of a unit is the path to it: version 0 of a token lies on a token edge below all tokens and
ops before it, a refreshed version on the edge of the ops that made it. Equal paths mean equal KV,
so whoever walks the same path may read the same slots. A running sequence locks the node it stands
on; a node with locks or children is never evicted, hence neither is anything above it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, count
from weakref import WeakSet

import numpy as np

from akv_rsi.engine.leaves import LeafQueue
from akv_rsi.engine.node import GONE, Bools, Domain, Match, Moved, Node, Path, common_length
from akv_rsi.engine.pool import Ints, PagePool
from akv_rsi.types import Op
from akv_rsi.visibility import Applied


class RadixTree:
    """All cached paths, by domain.

    ``cuts`` counts the changes that can invalidate a match, ``evicted_pages`` what `evict` freed,
    ``now`` the passes.
    """

    def __init__(self, pool: PagePool) -> None:
        self._pool = pool
        self._roots: dict[Domain, Node] = {}
        self._private: WeakSet[Node] = WeakSet()
        self._clock = count(1)
        self._leaves = LeafQueue()
        self._nodes = 0
        self.cuts = self.now = self.evicted_pages = 0

    def root(self, domain: Domain) -> Node:
        """The root of a domain's paths."""
        if domain not in self._roots:
            self._roots[domain] = Node(None, ())
        return self._roots[domain]

    def private_root(self) -> Node:
        """A root that nobody else can find, for a path that is discarded after use."""
        root = Node(None, ())
        self._private.add(root)
        return root

    def match(self, node: Node, path: Path, length: int = 0, groups: int = 0) -> Match:
        """The longest cached continuation of ``path`` from ``node``, where it has come so far.

        Ops at the path's very end are not entered. Nothing is modified.
        """
        tokens, total = path.tokens, len(path.tokens)
        boundary = path.boundary(groups)
        while length < total:
            if boundary == length:
                child = node.children.get(path.groups[groups][1])
                if child is None:
                    break
                node, groups = child, groups + 1
                boundary = path.boundary(groups)
                continue
            child = node.children.get(int(tokens[length]))
            if child is None:
                break
            size = len(child.tokens)
            same = common_length(child.tokens, tokens[length : min(total, boundary, length + size)])
            node, length = child, length + same
            if same < size:
                return Match(node, same, length, groups)
        return Match(node, len(node.tokens), length, groups)

    def anchor(self, match: Match) -> Node:
        """The node that ends exactly where ``match`` does; a longer one is split there."""
        node, offset = match.node, match.offset
        return node if offset == len(node.tokens) else self._split(node, offset)

    def lock(self, node: Node) -> None:
        """Keeps ``node``, and with it all above it, from being evicted."""
        node.locks += 1
        node.stamp = next(self._clock)

    def unlock(self, node: Node) -> None:
        """Takes one lock back."""
        node.locks -= 1
        self._offer(node)

    def append(self, node: Node, tokens: Ints, slots: Ints, birth: int) -> Node:
        """Puts tokens below ``node``, on which the caller holds a lock; the lock moves along.

        A leaf that only the caller stands on grows in place.
        """
        if node.tokens.size and not node.children and node.locks == 1:
            node.tokens = np.concatenate((node.tokens, tokens))
            node.slots = np.concatenate((node.slots, slots))
            self._hold(node, slots)
            return node
        return self._attach(node, Node(node, int(tokens[0]), tokens, slots.copy(), birth))

    def branch(
        self,
        node: Node,
        ops: tuple[Op, ...],
        applied: Applied,
        slots: Ints,
        moved: Moved | None = None,
    ) -> Node:
        """Puts ops below ``node``, on which the caller holds a lock; the lock moves along."""
        child = Node(node, ops, slots=slots.copy(), applied=applied)
        child.moved = moved
        child.since = self.now
        return self._attach(node, child)

    def fill(self, node: Node, where: Bools, slots: Ints) -> None:
        """KV that was gone, or not computed yet, is now in ``slots``."""
        node.slots[where] = slots
        self._hold(node, slots)

    def move(self, node: Node, tokens: Ints, slots: Ints) -> None:
        """The position version of ``node``, a Repos, has ``tokens`` too now, in ``slots``."""
        assert node.moved is not None
        known = node.moved
        node.moved = Moved(
            np.concatenate((known.tokens, tokens)), np.concatenate((known.slots, slots))
        )
        self._hold(node, slots)

    def forget_moved(self, node: Node) -> None:
        """Lets go of the position version of ``node``, a Repos."""
        node.moved = Moved()
        before, node.pages = node.pages, self._pool.pages_of(node.slots)
        self._pool.release(before[~np.isin(before, node.pages)])

    def relocate(self, slots: Ints) -> None:
        """What was in slot ``i`` is in ``slots[i]`` from now on."""
        for node in self.nodes():
            if np.array_equal(held := node.held, slots[held]):
                continue
            node.slots = slots[node.slots]
            if node.moved is not None:
                node.moved = Moved(node.moved.tokens, slots[node.moved.slots])
            before, node.pages = node.pages, self._pool.pages_of(node.held)
            self._pool.retain(node.pages)
            self._pool.release(before)

    def strip(self, dead: Bools) -> None:
        """Lets go of the pages marked in ``dead`` (one mark a page); the tokens stay."""
        for node in self.nodes():
            going = dead[node.pages]
            if going.any():
                size = self._pool.page_size
                node.slots[(node.slots >= 0) & dead[node.slots // size]] = GONE
                if node.moved is not None:
                    stays = ~dead[node.moved.slots // size]
                    node.moved = Moved(*(part[stays] for part in node.moved))
                before, node.pages = node.pages, node.pages[~going]
                self._pool.release(before[going])

    def evict(self, pages: int) -> bool:
        """Frees least recently used leaves until ``pages`` are free; whether that was reached."""
        while self._pool.free_pages < pages and (node := self._leaves.pop()) is not None:
            before = self._pool.free_pages
            self._remove(node)
            self.evicted_pages += self._pool.free_pages - before
        return self._pool.free_pages >= pages

    def discard(self, node: Node) -> None:
        """Removes an unlocked leaf and what leads to nothing but it."""
        while node.is_free_leaf:
            parent = node.parent
            assert parent is not None
            self._remove(node)
            node = parent

    def roots(self) -> list[Node]:
        """The roots of all paths, private ones included."""
        return [*self._roots.values(), *self._private]

    def nodes(self) -> Iterator[Node]:
        """All nodes."""
        return chain.from_iterable(self.roots())

    def check(self, cursors: list[Node]) -> None:
        """Asserts the tree's invariants; ``cursors`` are the nodes that sequences stand on."""
        seen: set[int] = set()
        locks = {id(node): 0 for node in self.nodes()}
        assert self._nodes == sum(n.parent is not None for n in self.nodes()), "nodes miscounted"
        for cursor in cursors:
            locks[id(cursor)] += 1
        for node in self.nodes():
            assert node.locks == locks[id(node)], "locks differ from the cursors"
            node.check(self._pool)
            slots = set(node.held[node.held != GONE].tolist())
            assert seen.isdisjoint(slots), "one slot in two nodes"
            seen |= slots

    def _hold(self, node: Node, slots: Ints) -> None:
        """``node`` holds the pages of ``slots`` too."""
        pages = self._pool.pages_of(slots)
        pages = pages[~np.isin(pages, node.pages)]
        self._pool.retain(pages)
        node.pages = np.concatenate((node.pages, pages))

    def _attach(self, node: Node, child: Node) -> Node:
        assert child.key not in node.children, "the path was matched as far as it goes"
        node.children[child.key] = child
        self._nodes += 1
        child.pages = self._pool.pages_of(child.held)
        self._pool.retain(child.pages)
        self.lock(child)
        self.unlock(node)
        return child

    def _split(self, node: Node, offset: int) -> Node:
        """Cuts a token edge in two; ``node`` stays the lower part, whose end others stand on."""
        parent = node.parent
        assert parent is not None
        self.cuts += 1
        head = Node(parent, node.key, node.tokens[:offset], node.slots[:offset], node.birth)
        head.stamp = node.stamp
        head.pages = self._pool.pages_of(head.slots)
        parent.children[head.key] = head
        self._nodes += 1
        node.parent, node.key = head, int(node.tokens[offset])
        node.tokens, node.slots = node.tokens[offset:], node.slots[offset:]
        node.birth += offset
        head.children[node.key] = node
        before, node.pages = node.pages, self._pool.pages_of(node.slots)
        self._pool.retain(head.pages)
        self._pool.retain(node.pages)
        self._pool.release(before)
        return head

    def _offer(self, node: Node) -> None:
        self._leaves.push(node, self._nodes)

    def _remove(self, node: Node) -> None:
        parent = node.parent
        assert parent is not None
        self.cuts += 1
        del parent.children[node.key]
        self._nodes -= 1
        node.parent = None
        self._pool.release(node.pages)
        # Whoever used the leaf used its parent too.
        parent.stamp = max(parent.stamp, node.stamp)
        self._offer(parent)
