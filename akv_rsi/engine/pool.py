"""Paged KV storage: pages of slots, handed out in leases, counted by reference.

Ownership. A page is held by every tree node that has a slot in it and by every running sequence
that leased from it; at zero holders it is free. Slots of a page are handed out in order: those in
``[0, fill)`` belong to whoever was given them and are never written by anyone else, those in
``[fill, page_size)`` may be claimed by the one sequence that continues right behind slot
``fill - 1``. A fork therefore never writes into a shared page: it finds the tail claimed, or
claims it and leaves the other fork to start a page of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from akv_rsi.engine.storage import Stored

Ints = npt.NDArray[np.int64]

# Two pages stay out of circulation: slot 0 is all zeros and never written (padding reads it), and
# rows whose KV the cache already has write to the second page, which nobody reads.
RESERVED = 2
NULL_SLOT = 0


class LayerShape(NamedTuple):
    """What a layer stores per token: ``heads`` keys of ``key_dim``, values of ``value_dim``."""

    heads: int
    key_dim: int
    value_dim: int


@dataclass(slots=True)
class Lease:
    """Slots granted to one sequence, used in order; ``pages`` are the pages it holds for them."""

    slots: Ints
    pages: Ints
    used: int = 0

    @property
    def left(self) -> int:
        """Slots not used yet."""
        return len(self.slots) - self.used

    @property
    def last(self) -> int | None:
        """Its last slot."""
        return int(self.slots[-1]) if len(self.slots) else None

    def take(self, count: int) -> Ints:
        """The next ``count`` slots."""
        taken = self.slots[self.used : self.used + count]
        assert len(taken) == count, "what a pass needs is leased before it is planned"
        self.used += count
        return taken


class LayerKv(NamedTuple):
    """What a layer has in the pages."""

    keys: Stored
    values: Stored


class PagePool:
    """Keys and values of all layers.

    Keys are stored rotated at the position their token had when it was computed. ``keys`` and
    ``values`` are the bare tensors of ``layers``, one a layer, as kernels read them.
    """

    def __init__(
        self,
        shapes: Sequence[LayerShape],
        pages: int,
        page_size: int,
        dtype: torch.dtype,
        device: torch.device | None = None,
        int8: bool = False,
    ) -> None:
        slots = (pages + RESERVED) * page_size
        self.page_size = page_size
        self.pages = pages
        self.device = torch.device("cpu") if device is None else device
        self.layers = [
            LayerKv(*(Stored(s.heads, slots, dim, dtype, self.device, int8) for dim in s[1:]))
            for s in shapes
        ]
        self.keys = [layer.keys.data for layer in self.layers]
        self.values = [layer.values.data for layer in self.layers]
        self.refs = np.zeros(pages + RESERVED, dtype=np.int64)
        self._fill = np.zeros(pages + RESERVED, dtype=np.int64)
        self._free: list[int] = []
        self.clear()

    def clear(self) -> None:
        """Nobody holds anything any more."""
        for stored in chain.from_iterable(self.layers):
            stored.clear(RESERVED * self.page_size)
        self.refs[:] = 0
        self._free = list(range(self.pages + RESERVED - 1, RESERVED - 1, -1))

    @property
    def token_bytes(self) -> int:
        """What one token's keys and values take over all layers."""
        return sum(stored.token_bytes for stored in chain.from_iterable(self.layers))

    @property
    def read_bytes(self) -> int:
        """What they take as attention reads them."""
        return sum(stored.read_bytes for stored in chain.from_iterable(self.layers))

    @property
    def scratch_slot(self) -> int:
        """Where rows write KV that nobody needs."""
        return self.page_size

    @property
    def free_pages(self) -> int:
        """Pages nobody holds."""
        return len(self._free)

    def pages_of(self, slots: Ints) -> Ints:
        """The distinct pages of ``slots``; negative ones are no slots."""
        pages = slots[slots >= 0] // self.page_size
        first = np.ones(len(pages), dtype=bool)
        np.not_equal(pages[1:], pages[:-1], out=first[1:])
        # Leases grant page by page: few are left that occur twice.
        return np.array(list(dict.fromkeys(pages[first].tolist())), dtype=np.int64)

    def pages_needed(self, count: int, after: int | None = None) -> int:
        """Free pages a lease of ``count`` slots takes when it continues behind slot ``after``."""
        return max(0, -(-(count - self._claimable(after)) // self.page_size))

    def lease(self, count: int, after: int | None = None) -> Lease:
        """``count`` slots, continuing in the page of slot ``after`` where its tail is unclaimed.

        The caller has made sure that ``pages_needed`` pages are free.
        """
        claimed = min(count, self._claimable(after))
        pieces, pages = [], []
        if claimed and after is not None:
            page = after // self.page_size
            self._fill[page] += claimed
            pieces.append(np.arange(after + 1, after + 1 + claimed))
            pages.append(page)
        rest = count - claimed
        while rest > 0:
            page = self._free.pop()
            size = min(rest, self.page_size)
            self._fill[page] = size
            pieces.append(np.arange(page * self.page_size, page * self.page_size + size))
            pages.append(page)
            rest -= size
        held = np.array(pages, dtype=np.int64)
        self.retain(held)
        slots = np.concatenate(pieces) if pieces else np.empty(0, dtype=np.int64)
        return Lease(slots, held)

    def extend(self, lease: Lease, count: int) -> None:
        """``count`` more slots for ``lease``, whose last one they follow where they can.

        The caller has made sure that ``pages_needed`` pages are free.
        """
        more = self.lease(count, lease.last)
        known = np.isin(more.pages, lease.pages)
        self.release(more.pages[known])
        lease.slots = np.concatenate((lease.slots, more.slots))
        lease.pages = np.concatenate((lease.pages, more.pages[~known]))

    def close(self, lease: Lease) -> None:
        """Ends a lease: unused slots go back, pages nobody else holds become free."""
        if lease.used < len(lease.slots):
            page, offset = divmod(int(lease.slots[lease.used]), self.page_size)
            self._fill[page] = offset
        self.release(lease.pages)

    def copy(self, sources: Ints, targets: Ints) -> None:
        """Copies the KV of all layers from slots to slots."""
        read, write = (torch.from_numpy(slots).to(self.device) for slots in (sources, targets))
        for stored in chain.from_iterable(self.layers):
            stored.copy(read, write)

    def retain(self, pages: Ints) -> None:
        """One more holder for each of ``pages`` (distinct)."""
        self.refs[pages] += 1

    def release(self, pages: Ints) -> None:
        """One holder less for each of ``pages`` (distinct); those without any become free."""
        self.refs[pages] -= 1
        self._free.extend(pages[self.refs[pages] == 0].tolist())

    def check(self, held: Iterable[Ints]) -> None:
        """Asserts that ``held``, the pages of every holder, is exactly what the counts say."""
        expected = np.zeros_like(self.refs)
        for pages in held:
            expected[pages] += 1
        assert np.array_equal(expected, self.refs), "reference counts differ from the holders"
        free = np.array(self._free, dtype=np.int64)
        assert len(set(self._free)) == len(free), "a page is free twice"
        assert not self.refs[free].any(), "a free page has holders"
        assert len(free) + np.count_nonzero(self.refs) == self.pages, "pages leaked"

    def _claimable(self, after: int | None) -> int:
        if after is None:
            return 0
        page, offset = divmod(after, self.page_size)
        return self.page_size - 1 - offset if self._fill[page] == offset + 1 else 0
