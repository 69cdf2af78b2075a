"""What decoding sequences see, on the device: tables that live as long as the engine.

A CUDA graph replays with the addresses it was captured with. So the tables are allocated once, for
``rows`` sequences of ``capacity`` keys; a sequence takes a row, and a decode step changes a few
numbers in place. What a step needs from the host goes there in one copy (`FEED`), without waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from akv_rsi.engine.gpu.segments import first_seen, processors
from akv_rsi.engine.gpu.turns import TurnTables
from akv_rsi.engine.pool import Ints, PagePool
from akv_rsi.engine.view import DeltaRun, Keys
from akv_rsi.kernels.attend.plan import ITEM, Cut, KeyList, Plan, Run, Sizes, Task, balanced, cut
from akv_rsi.kernels.checks import require
from akv_rsi.kernels.rotation import Turns

# Rows of a feed: token, position, slot of its KV, its place in the slot table, keys it sees, and
# from there on the first key it sees under each window.
FEED = ("token", "position", "slot", "column", "high")
# Items are cut anew when a sequence has grown by this many tokens.
GROWTH = 256
# Distinct deltas and items there is room for: twice as many, as runs are cut in pieces.
TURNS, ITEMS = 4096, 8192


@dataclass(slots=True)
class Row:
    """A sequence in the tables: its runs of deltas, its key positions, keys when last cut.

    ``source`` tells its keys anew.
    """

    runs: list[DeltaRun]
    positions: Ints
    length: int
    source: Callable[[], Keys]
    cut: int = 0


@dataclass(slots=True)
class DecodeTables:
    """Tables of up to ``size`` sequences that decode; rows without one see nothing."""

    pool: PagePool
    turns: TurnTables
    size: int
    capacity: int
    heads: int
    windows: tuple[int | None, ...]
    kinds: tuple[str, ...]
    items: int = 0
    turned: bool = False
    rows: dict[int, Row] = field(default_factory=dict)
    _leaving: list[int] = field(default_factory=list)
    _stale: bool = True
    _slots: Tensor = field(init=False)
    _items: Tensor = field(init=False)
    _parts: Tensor = field(init=False)
    _spans: dict[int | None, Tensor] = field(init=False)
    _angles: dict[str, Turns] = field(init=False)
    _host: Tensor = field(init=False)
    _positions: Ints = field(init=False)
    _deltas: Ints = field(init=False)
    feed: Tensor = field(init=False)
    order: Tensor = field(init=False)

    def __post_init__(self) -> None:
        device = self.pool.device
        self._slots = self._zeros(self.size * self.capacity)
        self._items = self._zeros(ITEMS, len(ITEM))
        self._parts = self._zeros(self.size, 3)
        self._spans = {window: self._zeros(self.size, 2) for window in self.windows}
        still = np.zeros(TURNS, dtype=np.int64)
        self._angles = {kind: self.turns.turns(still, kind) for kind in self.kinds}
        shape = (len(FEED) + len(self.windows), self.size)
        self._host = torch.zeros(shape, dtype=torch.int64, pin_memory=device.type == "cuda")
        self._positions = np.zeros((self.size, self.capacity), dtype=np.int64)
        self._deltas = np.zeros(1, dtype=np.int64)
        self.feed = torch.zeros(shape, dtype=torch.int64, device=device)
        self.order = torch.arange(self.size, device=device)

    def place(self, row: int, keys: Keys, source: Callable[[], Keys]) -> None:
        """Gives a free row to a sequence that sees ``keys``; ``source`` tells them anew."""
        count = len(keys.slots)
        require(count < self.capacity, f"{count} keys in rows of {self.capacity}")
        start = row * self.capacity
        slots = torch.from_numpy(keys.slots.astype(np.int32))
        self._slots[start : start + count].copy_(slots, non_blocking=True)
        positions = self._positions[row]
        positions[:count] = keys.positions
        self.rows[row] = Row(list(keys.runs), positions, count, source)
        self._stale = True

    def fits(self, runs: int) -> bool:
        """Whether a sequence of so many runs finds room among those that are in the tables."""
        return runs + 1 + sum(len(row.runs) + 1 for row in self.rows.values()) <= TURNS

    def renew(self) -> None:
        """KV has moved to other slots."""
        for row, entry in list(self.rows.items()):
            if row not in self._leaving:
                self.place(row, entry.source(), entry.source)

    def vacant(self) -> int | None:
        """The lowest free row."""
        return next((row for row in range(self.size) if row not in self.rows), None)

    def free(self, row: int) -> None:
        """The sequence in ``row`` leaves it; a step that is planned already still sees it."""
        self._leaving.append(row)

    def settle(self) -> None:
        """Before a pass is planned: rows that were left are free."""
        for row in self._leaving:
            del self.rows[row]
        self._stale |= bool(self._leaving)
        self._leaving.clear()

    def begin(self) -> None:
        """Starts a step: until told otherwise, no row has a token."""
        host = self._host.numpy()
        host[:] = 0
        host[2] = self.pool.scratch_slot
        host[3] = np.arange(1, self.size + 1) * self.capacity - 1  # where nobody looks

    def grow(self, row: int, token: int, position: int, slot: int) -> None:
        """The sequence in ``row`` has a new token, whose KV goes to ``slot``."""
        entry = self.rows[row]
        entry.positions[entry.length] = position
        self._host.numpy()[3, row] = row * self.capacity + entry.length
        entry.length += 1
        self._stale |= entry.length - entry.cut >= GROWTH
        self.ask(row, token, position, slot)

    def ask(self, row: int, token: int, position: int, slot: int) -> None:
        """As `grow`, for a token that is among the keys of ``row`` already."""
        host, entry = self._host.numpy(), self.rows[row]
        host[:3, row] = token, position, slot
        host[4, row] = entry.length
        for number, window in enumerate(self.windows, len(FEED)):
            seen = entry.positions[: entry.length]
            host[number, row] = first_seen(seen, np.array([position]), window)[0]

    def send(self) -> None:
        """Ends a step on the host: the device will know what it needs, in stream order."""
        if self._stale:
            self._cut()
        self.feed.copy_(self._host, non_blocking=True)

    def clear(self) -> None:
        """Nobody is left."""
        self.rows.clear()
        self._leaving.clear()
        self._stale = True

    def unpack(self) -> None:
        """On the device: the fed slots join the slot table, the spans grow (part of a graph)."""
        self._slots.index_copy_(0, self.feed[3], self.feed[2].int())
        for number, window in enumerate(self.windows, len(FEED)):
            self._spans[window][:, 0].copy_(self.feed[number])
            self._spans[window][:, 1].copy_(self.feed[4])

    def plan(self, window: int | None, rows: int) -> Plan:
        """The plan of the first ``rows`` rows; its tensors are the tables themselves."""
        return Plan(
            self._slots,
            self._items[: self.items],
            self._spans[window][:rows],
            self._parts[:rows],
            block_rows=1,
            turns=TURNS,
            slot_limit=self.pool.keys[0].shape[1],
        )

    def query_turns(self, kind: str | None) -> Turns | None:
        """What turns queries back; None where nothing has moved."""
        return self._angles[kind] if kind is not None and self.turned else None

    def _zeros(self, *size: int) -> Tensor:
        return torch.zeros(size, dtype=torch.int32, device=self.pool.device)

    def _cut(self) -> None:
        """Work items anew; the last run of a sequence has room to grow."""
        deltas: Ints = np.unique(
            [0, *(run.delta for row in self.rows.values() for run in row.runs)]
        )
        require(len(deltas) <= TURNS, f"{len(deltas)} deltas at once; at most {TURNS} fit")
        order = sorted(self.rows)
        lists, tasks = [], []
        for number, row in enumerate(order):
            entry = self.rows[row]
            entry.cut = entry.length
            end = min(self.capacity, entry.length + GROWTH)
            entry.runs = _grown(entry.runs, end)
            turns = np.searchsorted(deltas, [run.delta for run in entry.runs]).tolist()
            pieces = zip(entry.runs, turns, strict=True)
            runs = [Run(run.start, run.end, turn) for run, turn in pieces]
            lists.append(KeyList(np.empty(0, dtype=np.int64), runs))
            tasks.append(Task(number, number, np.array([[0, end]])))
        self._upload(order, cut(lists, np.array(order) * self.capacity, tasks, self._sizes()))
        self._turn(deltas)
        self._stale = False

    def _turn(self, deltas: Ints) -> None:
        """Angles of ``deltas``, where they are not those of the last time."""
        if np.array_equal(deltas, self._deltas):
            return
        self._deltas = deltas
        self.turned = bool(deltas.any())
        for kind, known in self._angles.items():
            fresh = self.turns.turns(-deltas, kind)
            known.cos[: len(deltas)] = fresh.cos
            known.sin[: len(deltas)] = fresh.sin

    def _upload(self, order: Sequence[int], made: Cut) -> None:
        count = len(made.items)
        require(count <= ITEMS, f"{count} work items; at most {ITEMS} fit")
        self.items = min(ITEMS, max(16, 1 << (count - 1).bit_length()))
        items = np.zeros((self.items, len(ITEM)), dtype=np.int32)
        items[:count] = made.items
        items[:count, 0] = np.array(order)[made.items[:, 0]]
        parts = np.zeros((self.size, 3), dtype=np.int32)
        parts[order] = made.parts
        self._items[: self.items].copy_(torch.from_numpy(items), non_blocking=True)
        self._parts.copy_(torch.from_numpy(parts), non_blocking=True)

    def _sizes(self) -> Sizes:
        keys = sum(row.length for row in self.rows.values())
        return balanced(keys, self.heads, processors(self.pool.device), block_rows=1)


def _grown(runs: list[DeltaRun], end: int) -> list[DeltaRun]:
    """The runs, new tokens included: they stand where they were born."""
    *rest, last = runs
    if last.delta == 0:
        return [*rest, DeltaRun(last.start, end, 0)]
    return [*runs, DeltaRun(last.end, end, 0)]
