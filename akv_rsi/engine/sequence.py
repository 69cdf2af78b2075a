"""One request on its way through the engine: where it stands in the tree, and what it still needs.

Life of a sequence: it *waits*; on admission it leases slots for its prompt and some tokens to come,
and *prefills*, walking the tree as far as its path is cached and adding rows for the rest
(`prefill`); then it *decodes* a token per pass, leasing more as it goes; at the end its decoded
tokens join the tree and its lease is closed. When there is no room to go on it is *preempted*: all
that it has computed joins the tree, and it waits again.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np
import torch

from akv_rsi.engine.attention import Segment
from akv_rsi.engine.cache import Cache
from akv_rsi.engine.pool import Lease
from akv_rsi.engine.request import Completion, Likely, Request
from akv_rsi.engine.sampler import Sampling
from akv_rsi.engine.walk import Walk


class Sequence(Walk):
    """A request in work; everything about it that outlives a pass."""

    def __init__(self, number: int, request: Request, cache: Cache, alone: bool = False) -> None:
        """A request that waits; ``alone`` it neither uses nor leaves anything in the cache."""
        super().__init__(request, cache, alone)
        self.number = number
        self.alone = alone
        self.request = request
        self.lease: Lease | None = None
        self.sampling = Sampling(request.temperature, request.seed)
        self.likely: list[Likely] = []
        self._started = perf_counter()
        self._first_token = self._last_token = 0.0
        self._watched: Segment | None = None
        self._mass = np.zeros(len(self.tokens) if request.attention else 0)

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
    def upcoming_position(self) -> int:
        """The position at which the next token will be computed."""
        if self.boundary == self.view.length:
            return self.timeline.applied[self.group].visibility.next_position
        return self.view.next_position

    def admit(self) -> bool:
        """Leases what its known tokens need, and some more; False when there is no room now."""
        self.cache.readers.append(self)
        after = self.enter()
        count = self.demand + min(len(self.tokens) - self.known, self.cache.pool.page_size)
        self.lease = self.cache.lease(count, after)
        if self.lease is None:
            self._retire()
            return False
        length = min(self.view.length, self.prompt)
        self.tally.found(length, self.group, length - min(self.exact(), length))
        return True

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

    def watch(self, segment: Segment) -> None:
        """Has the attention of the last row of ``segment`` measured, which samples a token."""
        segment.mass = torch.zeros(len(segment.keys.tokens))
        self._watched = segment

    def push(self, token: int, likely: Likely | None) -> bool:
        """Takes a sampled token; whether the request is finished with it."""
        if likely is not None:
            self.likely.append(likely)
        if self._watched is not None and self._watched.mass is not None:
            self._mass[self._watched.keys.tokens] += self._watched.mass.numpy()
            self._watched = None
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
            self._retire()
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
            matched_retrigger=tally.retriggered,
            recovered=tally.recovered,
            restored=tally.restored,
            attention=tuple(self._share(start, end) for start, end in self.request.attention),
            likely=tuple(self.likely),
        )

    def _share(self, start: int, end: int) -> float:
        """The part of the measured attention that tokens ``[start, end)`` got."""
        return float(self._mass[start:end].sum() / self._mass.sum())

    def _retire(self) -> None:
        """Reads nothing any more."""
        self.cache.readers.remove(self)
        self.leave()
