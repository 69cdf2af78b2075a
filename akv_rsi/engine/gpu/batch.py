"""A pass on the GPU: the rows of `Batch`, attended to by kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from akv_rsi.engine.attention import LayerCall, Segment
from akv_rsi.engine.batch import Batch
from akv_rsi.engine.gpu.segments import DeviceSegments, store_of
from akv_rsi.engine.gpu.tables import DecodeTables
from akv_rsi.engine.gpu.turns import TurnTables
from akv_rsi.engine.hook import LayerSpec
from akv_rsi.engine.pool import Ints, PagePool
from akv_rsi.kernels.attend.triton import Score, attend
from akv_rsi.kernels.layer.triton import put
from akv_rsi.kernels.move.triton import Moves, make_moves, move
from akv_rsi.kernels.rotation import Turns


class PagedGroup:
    """Sequences that decode from their pages, each in a row of the tables.

    ``rows`` are the table rows of a step's batch rows. Beside sequences that take a token further,
    a step may `ask` for the logits of one whose keys are all known.
    """

    def __init__(self, tables: DecodeTables) -> None:
        self.tables = tables
        self.rows: Ints = np.empty(0, dtype=np.int64)
        self._index: Tensor | None = None

    def begin(self, rows: Ints, fed: Ints) -> None:
        """Takes ``fed`` ``[n, 3]``, token, position and slot, for the sequences in ``rows``."""
        self.tables.begin()
        for row, (token, position, slot) in zip(rows.tolist(), fed.tolist(), strict=True):
            self.tables.grow(row, token, position, slot)
        self.rows = rows
        self._index = None

    def attend(self, query: Tensor, call: LayerCall) -> Tensor:
        """``[rows, query heads, value dim]`` of a step's own rows, in any pass."""
        tables = self.tables
        if self._index is None:
            tables.send()
            tables.unpack()
            self._index = torch.from_numpy(self.rows).to(query.device)
        padded = query.new_zeros(tables.size, *query.shape[1:])
        padded[self._index] = query
        return read_rows(tables, padded, call)[self._index]


def read_rows(tables: DecodeTables, query: Tensor, call: LayerCall) -> Tensor:
    """Attention of the first rows of the tables, a query each."""
    store = store_of(tables.pool, call.layer)
    score = Score(call.scale, call.softcap, call.sinks)
    plan = tables.plan(call.window, len(query))
    out: Tensor = attend(query, store, plan, score, tables.query_turns(call.rope))
    return out


class DeviceCopies:
    """Turned copies within the pool, to be made layer by layer."""

    def __init__(
        self, parts: Sequence[tuple[Ints, Ints, Ints]], pool: PagePool, tables: TurnTables
    ) -> None:
        sources, targets, deltas = (np.concatenate(part) for part in zip(*parts, strict=True))
        self._deltas, turn = np.unique(deltas, return_inverse=True)
        self._pool = pool
        self._tables = tables
        self._moves = make_moves(sources, targets, turn, pool.device)
        self._turns: dict[str, Turns] = {}

    def make(self, layer: int, kind: str | None) -> None:
        """One layer's copies; ``kind`` is its rotary kind."""
        store, moves = store_of(self._pool, layer), self._moves
        if kind is None:
            move(store, store, Moves(moves.source, moves.target, None, moves.limits, moves.overlap))
            return
        if kind not in self._turns:
            self._turns[kind] = self._tables.turns(self._deltas, kind)
        move(store, store, moves, self._turns[kind])


@dataclass(slots=True)
class DeviceBatch(Batch):
    """Rows on the device. ``asked`` are segments of one row that also have a row in the tables."""

    tables: TurnTables = field(kw_only=True)
    asked: list[tuple[int, Segment]] = field(default_factory=list)
    _segments: DeviceSegments | None = None
    _made: DeviceCopies | None = None

    @property
    def tokens(self) -> Tensor:
        """``[1, rows]`` token ids."""
        return self._send(self._tokens)[None]

    @property
    def positions(self) -> Tensor:
        """``[1, rows]`` positions."""
        return self._send(self._positions)[None]

    @property
    def kept_rows(self) -> Tensor:
        """The rows whose logits are wanted."""
        return torch.tensor(self.kept, dtype=torch.long).to(self.pool.device)

    @property
    def is_step(self) -> bool:
        """Whether it takes sequences in the tables one token further, and does nothing else.

        What it copies may be copied before.
        """
        if len(self.asked) < len(self.segments):
            return False
        sources = [source for source, _, _ in self._copies]
        return not any(np.isin(slots, source).any() for source in sources for slots in self._slots)

    def fed(self, row: int) -> tuple[int, int, int]:
        """Token, position and slot of one row."""
        parts = (self._tokens, self._positions, self._slots)
        token, position, slot = (int(np.concatenate(part)[row]) for part in parts)
        return token, position, slot

    def copy_ahead(self, layers: Sequence[LayerSpec]) -> None:
        """Makes the copies of a step, which are of what earlier passes computed."""
        if self._copies:
            for number, layer in enumerate(layers):
                self._copying().make(number, layer.rope)

    def tell_mass(self) -> None:
        """Gives the segments that asked for it the attention of their last row, over all layers."""
        if self._segments is not None:
            self._segments.tell_mass()

    def attend(self, query: Tensor, key: Tensor, value: Tensor, call: LayerCall) -> Tensor:
        """See `Batch.attend`."""
        if self._write is None:
            self._write = self._send(self._slots)
        put(store_of(self.pool, call.layer), key, value, self._write)
        if self._copies:
            self._copying().make(call.layer, call.rope)
        query = query.transpose(0, 1).contiguous()
        out = query.new_empty(*query.shape[:2], value.shape[-1])
        for group, rows in self.groups:
            assert isinstance(group, PagedGroup)
            out[rows] = group.attend(query[rows], call)
        if self.segments:
            if self._segments is None:
                self._segments = DeviceSegments(self.segments, self.pool, self.tables)
            self._segments.attend(query, out, call)
        return out

    def _copying(self) -> DeviceCopies:
        if self._made is None:
            self._made = DeviceCopies(self._copies, self.pool, self.tables)
        return self._made

    def _send(self, parts: list[Ints]) -> Tensor:
        return torch.from_numpy(np.concatenate(parts)).to(self.pool.device)
