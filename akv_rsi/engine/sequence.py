"""One request on its way through the engine: where it stands in the tree, and what it still needs.

Life of a sequence: it *waits*; on admission it leases slots for its prompt and some tokens to come,
and *prefills*, walking the tree as far as its path is cached and adding rows for the rest
(`prefill`); then it *decodes* a token per pass, leasing more as it goes; at the end its decoded
tokens join the tree and its lease is closed. When there is no room to go on it is *preempted*: all
that it has computed joins the tree, and it waits again.

Of its ``known`` tokens (prompt and output), ``[0, view.length)`` have KV or a row in the pass being
planned, except those whose KV is gone; of its op groups, ``[0, group)`` have happened; tokens from
``committed`` on are not in the tree yet. It is ``ready`` when all that it will read has KV.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np

from akv_rsi.engine.cache import Cache
from akv_rsi.engine.closure import Read, closure
from akv_rsi.engine.node import EMPTY, Match, Node, Path, Step, units, way_to
from akv_rsi.engine.pool import Ints, Lease
from akv_rsi.engine.request import Completion, Request, Tally
from akv_rsi.engine.sampler import Sampling
from akv_rsi.engine.timeline import Timeline
from akv_rsi.engine.view import View
from akv_rsi.visibility import Visibility


class Sequence:
    """A request in work; everything about it that outlives a pass."""

    def __init__(self, number: int, request: Request, cache: Cache, alone: bool = False) -> None:
        """A request that waits; ``alone`` it neither uses nor leaves anything in the cache."""
        tree = cache.tree
        self.number = number
        self.alone = alone
        self.request = request
        self.prompt = self.known = len(request.tokens)
        self.tokens = np.empty(self.prompt + request.max_new_tokens, dtype=np.int64)
        self.tokens[: self.prompt] = request.tokens
        self.lease: Lease | None = None
        self.sampling = Sampling(request.temperature, request.seed)
        self.tally = Tally()
        self.cache = cache
        self._root = tree.private_root() if alone else tree.root(request.tenant)
        self.node = self._root
        self.view = View(len(self.tokens))
        self.group = self.committed = 0
        self.ready = True
        groups = tuple(request.history.groups())
        self._match = tree.match(self._root, Path(self.tokens[: self.prompt], groups))
        self._cuts = tree.cuts
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
        return 0 < self.view.length == self.known - 1 < self.boundary - 1

    @property
    def short(self) -> bool:
        """Whether it runs and has no slot for its next token."""
        return self.lease is not None and self.lease.used == len(self.lease.slots)

    @property
    def complete(self) -> bool:
        """Whether the logits of the last known token can be had in this pass."""
        return self.ready and self.view.length == self.known

    @property
    def boundary(self) -> int:
        """Where the next ops happen; past the end of what is known when there are none."""
        boundary = self.timeline.boundary(self.group)
        return self.known + 1 if boundary is None else boundary

    @property
    def upcoming_position(self) -> int:
        """The position at which the next token will be computed."""
        if self.boundary == self.view.length:
            return self.timeline.applied[self.group].visibility.next_position
        return self.view.next_position

    @property
    def demand(self) -> int:
        """Slots it takes to compute all known tokens."""
        lost = 0 if self.ready else sum(map(len, self.lost(way_to(self.node))))
        return self.known - self.view.length + self.timeline.refreshed(self.group) + lost

    def admit(self) -> bool:
        """Leases what its known tokens need, and some more; False when there is no room now."""
        tree, pool = self.cache.tree, self.cache.pool
        if tree.cuts != self._cuts:
            self._match, self._cuts = tree.match(self._root, self._path), tree.cuts
        match, node = self._match, tree.anchor(self._match)
        tree.lock(node)
        self.cache.readers.append(self)
        self._enter(node, match)
        after = int(node.slots[-1]) if node.slots.size and node.slots[-1] >= 0 else None
        count = self.demand + min(len(self.tokens) - self.known, pool.page_size)
        self.lease = self.cache.lease(count, after)
        if self.lease is None:
            self._leave()
        return self.lease is not None

    def secure(self) -> bool:
        """Makes sure that its lease covers its known tokens; False when there is no room."""
        assert self.lease is not None
        more = self.demand - self.lease.left
        return more <= 0 or self.cache.extend(self.lease, more)

    def grow(self) -> bool:
        """Leases slots for tokens to come; False when there is no room."""
        assert self.lease is not None
        return self.cache.extend(self.lease, min(self.room, self.cache.pool.page_size))

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

    def release(self, keep: bool) -> None:
        """Lets go of everything; what was decoded joins the tree, or the path is discarded."""
        keep = keep and not self.alone
        node = self.node
        if self.lease is not None:
            if keep:
                self.commit()
            node = self.node
            self.tally.had(self.view.length, self.group)
            lease, self.lease = self.lease, None
            self._leave()
            self.cache.pool.close(lease)
        if not keep:
            self.cache.tree.discard(node)

    def completion(self) -> Completion:
        """What the caller gets."""
        output, tally = self.output, self.tally
        return Completion(
            tokens=output,
            finish="stop" if output and output[-1] in self.request.stop else "length",
            cached=self.prompt - tally.fresh,
            computed=tally.fresh + tally.refreshed + tally.recovered,
            refreshed=tally.refreshed,
            attended=self.timeline.before(self.prompt).attended,
            ttft=self._first_token - self._started,
            itl=(self._last_token - self._first_token) / max(1, len(output) - 1),
            matched_exact=tally.exact,
            recovered=tally.recovered,
            restored=tally.restored,
        )

    def reads(self) -> list[Ints]:
        """The slots it reads or will read; all of them while it is not ready."""
        if not self.ready:
            return [self.view.slots(np.arange(self.view.length))]
        states = [self.view.state, *(a.visibility for a in self.timeline.applied[self.group :])]
        return [
            self.view.slots(np.arange(start, min(end, self.view.length)))
            for state in states
            for start, end in state.visible_ranges
        ]

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
            self._enter(node, match)
            tree.unlock(start)

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

    @property
    def _path(self) -> Path:
        """Its key in the tree, as far as it is known."""
        return Path(self.tokens[: self.known], self.timeline.groups)

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
        self.tally.found(min(match.length, self.prompt), match.groups)
        self.ready = self.ready and self.view.whole

    def _leave(self) -> None:
        """Stands nowhere in the tree any more, and has computed nothing."""
        self.cache.readers.remove(self)
        self.cache.tree.unlock(self.node)
        self.node = self._root
        self.view = View(len(self.tokens))
        self.group = self.committed = 0
        self.ready = True
        self._cuts = -1
