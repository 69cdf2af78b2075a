"""Where a sequence stands in the tree, and what it sees there.

Of its ``known`` tokens, ``[0, view.length)`` have KV or a row in the pass being planned, except
those whose KV is gone; of its op groups, ``[0, group)`` have happened; tokens from ``committed`` on
are not in the tree yet. It is ``ready`` when all that it will read has KV.
"""

from __future__ import annotations

import numpy as np

from akv_rsi.engine.cache import Cache
from akv_rsi.engine.closure import Read, closure
from akv_rsi.engine.node import EMPTY, GONE, Domain, Match, Node, Path, Step, units, way_to
from akv_rsi.engine.pool import Ints
from akv_rsi.engine.request import Request, Tally
from akv_rsi.engine.timeline import Timeline
from akv_rsi.engine.view import View
from akv_rsi.visibility import Visibility


class Walk:
    """A path through the tree, as far as it has been walked."""

    def __init__(self, request: Request, cache: Cache, alone: bool) -> None:
        """At the root; ``alone`` a root of its own, which nobody else finds."""
        tree = cache.tree
        self.cache = cache
        self.tally = Tally()
        self.prompt = self.known = len(request.tokens)
        self.tokens = np.empty(self.prompt + request.max_new_tokens, dtype=np.int64)
        self.tokens[: self.prompt] = request.tokens
        domain = Domain(request.tenant, request.salt)
        self._root = tree.private_root() if alone else tree.root(domain)
        self._match = tree.match(
            self._root, Path(self.tokens[: self.prompt], tuple(request.history.groups()))
        )
        self._cuts = tree.cuts
        known = self._match.node.applied_above()
        self.timeline = Timeline(request.history, self.prompt, request.pinned, known)
        self.node = self._root
        self.view = self.new_view()
        self.group = self.committed = 0
        self.ready = True

    def new_view(self) -> View:
        """A view of nothing yet."""
        return View(len(self.tokens), self.cache.copies)

    @property
    def boundary(self) -> int:
        """Where the next ops happen; past the end of what is known when there are none."""
        boundary = self.timeline.boundary(self.group)
        return self.known + 1 if boundary is None else boundary

    @property
    def demand(self) -> int:
        """Slots it takes to compute all known tokens."""
        lost = 0 if self.ready else sum(map(len, self.lost(way_to(self.node))))
        more = self.known - self.view.length + self.timeline.refreshed(self.group) + lost
        return more + self._copies if self.cache.copies else more

    @property
    def _copies(self) -> int:
        """Slots it takes to copy what stands elsewhere than born, at most."""
        last = self.timeline.last_repos(self.known)
        if last < self.group:
            return len(self.view.displaced()[0])
        return self.timeline.applied[last].visibility.attended

    def enter(self) -> int | None:
        """Goes as far as the path is cached; the slot to continue behind, if there is one."""
        tree = self.cache.tree
        if tree.cuts != self._cuts:
            self._match, self._cuts = tree.match(self._root, self._path), tree.cuts
        node = tree.anchor(self._match)
        tree.lock(node)
        self._down(node, self._match)
        return int(node.slots[-1]) if node.slots.size and node.slots[-1] != GONE else None

    def leave(self) -> None:
        """Stands nowhere in the tree any more, and has computed nothing."""
        self.cache.tree.unlock(self.node)
        self.node = self._root
        self.view = self.new_view()
        self.group = self.committed = 0
        self.ready = True
        self._cuts = -1

    def reads(self) -> list[Ints]:
        """The slots it reads or will read; all of them while it is not ready."""
        if not self.ready:
            return self._both(np.arange(self.view.length))
        states = [self.view.state, *(a.visibility for a in self.timeline.applied[self.group :])]
        seen = [
            np.arange(start, min(end, self.view.length))
            for state in states
            for start, end in state.visible_ranges
        ]
        return [part for tokens in seen for part in self._both(tokens)]

    def _both(self, tokens: Ints) -> list[Ints]:
        return [self.view.slots(tokens), self.view.copies(tokens)]

    def lost(self, way: list[Step]) -> list[Ints]:
        """Per epoch, the tokens on its ``way`` that must be computed again."""
        length = self.view.length
        gone: list[list[Ints]] = [[] for _ in range(self.group + 1)]
        for step in way:
            gone[step.epoch].append(step.tokens[step.node.slots < 0])
        upcoming = self.timeline.groups[self.group :]
        states = [Visibility(), *(applied.visibility for applied in self.timeline.applied)]
        # The last token is never fed: ops before it, at the very end, are never applied.
        end = max(self.prompt, len(self.tokens) - 1)
        reads = [
            Read(state, length)
            for (boundary, _), state in zip(upcoming, states[self.group + 1 :], strict=True)
            if boundary < end
        ]
        if self.boundary > length or length == self.known:
            reads.append(Read(self.view.state, length))
        return closure(reads, states, [np.concatenate([EMPTY, *tokens]) for tokens in gone])

    def follow(self) -> None:
        """Walks on where others have computed its path meanwhile."""
        if self.committed < self.view.length:
            self.commit()
        tree = self.cache.tree
        match = tree.match(self.node, self._path, self.view.length, self.group)
        if (match.length, match.groups) != (self.view.length, self.group):
            node, start = tree.anchor(match), self.node
            tree.lock(node)
            self._down(node, match)
            tree.unlock(start)
            self.tally.found(min(match.length, self.prompt), self.group)

    def commit(self) -> None:
        """Puts decoded tokens into the tree; where another was first, its slots stay."""
        tree = self.cache.tree
        path = Path(self.tokens[: self.view.length], self.timeline.groups)
        match = tree.match(self.node, path, self.committed, self.group)
        node = tree.anchor(match)
        tree.lock(node)
        tree.unlock(self.node)
        self.node = node
        if match.length < self.view.length:
            tokens = np.arange(match.length, self.view.length)
            slots, birth = self.view.slots(tokens), int(self.view.births(tokens[:1])[0])
            self.node = tree.append(node, path.tokens[tokens], slots, birth)
        self.committed = self.view.length

    def exact(self) -> int:
        """How many tokens on the way here can be read as they are, position versions included.

        Where copies of the last Repos are missing, the rest has to be triggered again.
        """
        exact = self.view.length
        if self.cache.copies and len(self.view.displaced()[0]):
            exact, view = 0, self.new_view()
            for step in way_to(self.node):
                if step.node.applied is None:
                    view.append(step.node.slots)
                    exact = exact if len(view.displaced()[0]) else view.length
                else:
                    view.apply(step.node.applied, step.node.slots, step.node.moved)
        return exact

    @property
    def _path(self) -> Path:
        """Its key in the tree, as far as it is known."""
        return Path(self.tokens[: self.known], self.timeline.groups)

    def _down(self, node: Node, match: Match) -> None:
        """Moves down to ``node``, reading the slots of what lies on the way."""
        way = []
        while node is not self.node:
            way.append(node)
            assert node.parent is not None
            node = node.parent
        way.reverse()
        self.view.append(*units([step for step in way if step.applied is None]))
        ops = [step for step in way if step.applied is not None]
        for step in ops:
            assert step.applied is not None
            if step.applied.refreshed or step.moved is not None or step is ops[-1]:
                self.view.apply(step.applied, step.slots, step.moved)
        self.node = way[-1] if way else self.node
        self.group = match.groups
        self.committed = self.view.length
        self.ready = self.ready and self.view.whole
