"""One request on its way through the engine: where it stands in the tree, and what it still needs.

Life of a sequence: it *waits*; on admission it leases slots for all it can need and *prefills*,
walking the tree as far as its path is cached and adding rows for the rest; then it *decodes* a
token per pass; at the end its decoded tokens join the tree and its lease is closed.

Of its ``known`` tokens (prompt and output), ``[0, view.length)`` have KV or a row in the pass being
planned; of its op groups, ``[0, group)`` have happened; tokens from ``committed`` on are not in the
tree yet.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np

from akv_rsi.engine.batch import Batch
from akv_rsi.engine.node import Match, Node, Path, units
from akv_rsi.engine.pool import Ints, Lease, PagePool
from akv_rsi.engine.radix import RadixTree
from akv_rsi.engine.request import Completion, Request
from akv_rsi.engine.sampler import Sampling
from akv_rsi.engine.timeline import Timeline
from akv_rsi.engine.view import View, indices


class Sequence:
    """A request in work; everything about it that outlives a pass."""

    def __init__(self, number: int, request: Request, tree: RadixTree, alone: bool = False) -> None:
        """A request that waits; ``alone`` it neither uses nor leaves anything in the cache."""
        root = tree.private_root() if alone else tree.root(request.tenant)
        self.number = number
        self.alone = alone
        self.request = request
        self.prompt = self.known = len(request.tokens)
        self.tokens = np.empty(self.prompt + request.max_new_tokens, dtype=np.int64)
        self.tokens[: self.prompt] = request.tokens
        self.view = View(len(self.tokens))
        self.node = root
        self.group = self.committed = 0
        self.lease: Lease | None = None
        self.sampling = Sampling(request.temperature, request.seed)
        self.computed = self.refreshed = 0
        self._tree = tree
        groups = tuple(request.history.groups())
        self._match, self._cuts = tree.match(root, Path(self._known, groups)), tree.cuts
        known = self._match.node.applied_above()
        self.timeline = Timeline(request.history, self.prompt, request.pinned, known)
        self._started = perf_counter()
        self._first_token = self._last_token = 0.0

    @property
    def output(self) -> tuple[int, ...]:
        """The tokens sampled so far."""
        return tuple(self.tokens[self.prompt : self.known].tolist())

    @property
    def room(self) -> int:
        """Tokens that may still be fed."""
        return len(self.tokens) - self.view.length

    @property
    def decodes(self) -> bool:
        """Whether one plain token, with no ops before it, is all that it needs."""
        return 0 < self.view.length == self.known - 1 < self._boundary - 1

    @property
    def upcoming_position(self) -> int:
        """The position at which the next token will be computed."""
        if self._boundary == self.view.length:
            return self.timeline.applied[self.group].visibility.next_position
        return self.view.next_position

    def admit(self, pool: PagePool) -> bool:
        """Leases all it can need, evicting if it must; False when there is no room for it now."""
        if self._tree.cuts != self._cuts:
            self._match, self._cuts = self._tree.match(self.node, self._path), self._tree.cuts
        match, node = self._match, self._tree.anchor(self._match)
        self._tree.lock(node)
        after = int(node.slots[-1]) if node.slots.size else None
        count = len(self.tokens) - match.length + self.timeline.refreshed(match.groups)
        if not self._tree.evict(pool.pages_needed(count, after)):
            self._tree.unlock(node)
            return False
        self.lease = pool.lease(count, after)
        self._enter(node, match)
        return True

    def plan(self, batch: Batch, budget: int) -> list[slice]:
        """Adds rows until all known tokens have KV or ``budget`` rows are spent.

        Returns the rows of version-0 tokens; when none is left to compute, the last known token is
        computed once more, for its logits. A Refresh is never cut by the budget.
        """
        self._follow()
        rows: list[slice] = []
        start = batch.size
        while self.view.length < self.known and batch.size - start < budget:
            if self._boundary == self.view.length:
                self._apply(batch)
            else:
                rows.append(self._append(batch, budget - (batch.size - start)))
        if batch.size == start:
            rows.append(self._repeat_last(batch))
        return rows

    def feed(self) -> tuple[int, int, int]:
        """For a decode step: the last known token, its position and its slot, now in the view."""
        assert self.lease is not None
        slots = self.lease.take(1)
        position = self.view.next_position
        self.view.append(slots)
        return int(self.tokens[self.known - 1]), position, int(slots[0])

    def push(self, token: int) -> bool:
        """Takes a sampled token; whether the request is finished with it."""
        self._last_token = perf_counter()
        if self.known == self.prompt:
            self._first_token = self._last_token
        self.tokens[self.known] = token
        self.known += 1
        return self.known == len(self.tokens) or token in self.request.stop

    def release(self, pool: PagePool, keep: bool) -> None:
        """Lets go of everything; what was decoded joins the tree, or the path is discarded."""
        keep = keep and not self.alone
        if self.lease is not None:
            if keep:
                self._commit()
            self._tree.unlock(self.node)
            pool.close(self.lease)
            self.lease = None
        if not keep:
            self._tree.discard(self.node)

    def completion(self) -> Completion:
        """What the caller gets."""
        output = self.output
        return Completion(
            tokens=output,
            finish="stop" if output and output[-1] in self.request.stop else "length",
            cached=self.prompt - (self.computed - self.refreshed),
            computed=self.computed,
            refreshed=self.refreshed,
            attended=self.timeline.before(self.prompt).attended,
            ttft=self._first_token - self._started,
            itl=(self._last_token - self._first_token) / max(1, len(output) - 1),
        )

    @property
    def _boundary(self) -> int:
        """Where the next ops happen; past the end of what is known when there are none."""
        boundary = self.timeline.boundary(self.group)
        return self.known + 1 if boundary is None else boundary

    @property
    def _known(self) -> Ints:
        return self.tokens[: self.known]

    @property
    def _path(self) -> Path:
        """Its key in the tree, as far as it is known."""
        return Path(self._known, self.timeline.groups)

    def _enter(self, node: Node, match: Match) -> None:
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
            if step.applied is not None and (step.applied.refreshed or step is ops[-1]):
                self.view.apply(step.applied, step.slots)
        self.node = way[-1] if way else self.node
        self.group = match.groups
        self.committed = self.view.length

    def _follow(self) -> None:
        """Walks on where others have computed its path meanwhile."""
        if self.committed < self.view.length:
            self._commit()
        match = self._tree.match(self.node, self._path, self.view.length, self.group)
        if (match.length, match.groups) != (self.view.length, self.group):
            node, start = self._tree.anchor(match), self.node
            self._tree.lock(node)
            self._enter(node, match)
            self._tree.unlock(start)

    def _apply(self, batch: Batch) -> None:
        """The ops at the present boundary; refreshed tokens become rows in the past."""
        assert self.lease is not None
        (_, ops), applied = self.timeline.groups[self.group], self.timeline.applied[self.group]
        tokens = indices(applied.refreshed)
        slots = self.lease.take(len(tokens))
        self.view.apply(applied, slots)
        self.node = self._tree.branch(self.node, ops, applied, slots)
        self.group += 1
        if not len(tokens):
            return
        keys = self.view.keys()
        limits = np.searchsorted(keys.tokens, tokens) + 1
        positions = self.view.births(tokens)
        batch.add_segment(self.tokens[tokens], positions, slots, keys, limits)
        self.refreshed += len(tokens)
        self.computed += len(tokens)

    def _append(self, batch: Batch, budget: int) -> slice:
        """The next tokens, up to the next boundary."""
        assert self.lease is not None
        start = self.view.length
        stop = min(self.known, self._boundary, start + budget)
        slots = self.lease.take(stop - start)
        birth = self.view.next_position
        self.view.append(slots)
        tokens = self.tokens[start:stop].copy()
        self.node = self._tree.append(self.node, tokens, slots, birth)
        self.committed = stop
        self.computed += max(0, min(stop, self.prompt) - start)
        keys = self.view.keys()
        limits = np.arange(len(keys.slots) - len(slots), len(keys.slots)) + 1
        return batch.add_segment(tokens, birth + np.arange(len(slots)), slots, keys, limits)

    def _repeat_last(self, batch: Batch) -> slice:
        """Everything is cached: one row for the last token's logits, whose KV nobody needs."""
        keys = self.view.keys()
        token = self.tokens[self.known - 1 : self.known]
        scratch = np.array([batch.pool.scratch_slot])
        self.computed += self.known == self.prompt
        limits = np.array([len(keys.slots)])
        return batch.add_segment(token, keys.positions[-1:], scratch, keys, limits)

    def _commit(self) -> None:
        """Puts decoded tokens into the tree; where another was first, its slots stay."""
        path = Path(self.tokens[: self.view.length], self.timeline.groups)
        match = self._tree.match(self.node, path, self.committed, self.group)
        node = self._tree.anchor(match)
        self._tree.lock(node)
        self._tree.unlock(self.node)
        self.node = node
        if match.length < self.view.length:
            tokens = np.arange(match.length, self.view.length)
            slots, birth = self.view.slots(tokens), int(self.view.births(tokens[:1])[0])
            self.node = self._tree.append(node, path.tokens[tokens], slots, birth)
        self.committed = self.view.length
