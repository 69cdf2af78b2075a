"""The working set of decoding: dense copies of what each sequence sees, one row per sequence.

Pages scatter a sequence's keys; gathering them anew for every decoded token costs more than
attention itself. So sequences that decode together get their visible keys copied once, turned to
the positions they are seen at, into one tensor per layer, and each step appends a column. The pool
keeps the truth: a group is dropped and rebuilt at will.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from akv_rsi.engine.attention import LayerCall, weigh
from akv_rsi.engine.pool import NULL_SLOT, Ints, PagePool
from akv_rsi.engine.rotary import Angles, Rotary
from akv_rsi.engine.view import Keys


class DenseGroup:
    """Keys ``[kv heads, members, capacity, key dim]`` per layer, values alike."""

    def __init__(
        self,
        pool: PagePool,
        rotary: Rotary,
        ropes: Sequence[str | None],
        members: Sequence[Keys],
        room: int,
    ) -> None:
        self.size = len(members)
        self._lengths = np.array([len(keys.slots) for keys in members])
        self._capacity = int(self._lengths.max()) + room
        slots = np.full((self.size, self._capacity), NULL_SLOT)
        deltas = np.zeros_like(slots)
        self._positions = np.zeros_like(slots)
        for row, keys in enumerate(members):
            slots[row, : len(keys.slots)] = keys.slots
            self._positions[row, : len(keys.slots)] = keys.positions
            for run in keys.runs:
                deltas[row, run.start : run.end] = run.delta
        self._keys, self._values = self._copy(pool, rotary, ropes, slots, deltas)
        self._rows = torch.arange(self.size)
        self._columns = self._rows
        self._queries = np.zeros(self.size, dtype=np.int64)
        self._bias: dict[int | None, Tensor] = {}

    def _copy(
        self,
        pool: PagePool,
        rotary: Rotary,
        ropes: Sequence[str | None],
        slots: Ints,
        deltas: Ints,
    ) -> tuple[list[Tensor], list[Tensor]]:
        index = torch.from_numpy(slots.reshape(-1))
        distinct, inverse = np.unique(deltas, return_inverse=True)
        moved = distinct.any()
        angles: dict[str, Angles] = {}
        if moved:
            which = torch.from_numpy(inverse.reshape(-1))
            for kind in {rope for rope in ropes if rope is not None}:
                cos, sin = rotary.angles(distinct, kind)
                angles[kind] = Angles(cos[which], sin[which])
        keys, values = [], []
        for layer, rope in enumerate(ropes):
            copy = pool.keys[layer].index_select(1, index)
            if moved and rope is not None:
                copy = rotary.turn(copy, angles[rope])
            keys.append(copy.view(copy.shape[0], *slots.shape, -1))
            copy = pool.values[layer].index_select(1, index)
            values.append(copy.view(copy.shape[0], *slots.shape, -1))
        return keys, values

    @property
    def has_room(self) -> bool:
        """Whether every member can take another token."""
        return bool(self._lengths.max() < self._capacity)

    def begin(self, rows: Ints, positions: Ints) -> None:
        """Prepares one token for each member in ``rows``, at ``positions``."""
        lengths = self._lengths
        self._positions[rows, lengths[rows]] = positions
        self._rows = torch.from_numpy(rows)
        self._columns = torch.from_numpy(rows * self._capacity + lengths[rows])
        self._queries[rows] = positions
        lengths[rows] += 1
        self._bias.clear()

    def attend(self, query: Tensor, key: Tensor, value: Tensor, call: LayerCall) -> Tensor:
        """``[rows, query heads, value dim]`` for queries ``[query heads, rows, key dim]``.

        ``key`` and ``value`` ``[kv heads, rows, dim]`` are the rows' own and join the set.
        """
        keys, values = self._keys[call.layer], self._values[call.layer]
        keys.flatten(1, 2).index_copy_(1, self._columns, key)
        values.flatten(1, 2).index_copy_(1, self._columns, value)
        heads, dim = keys.shape[0], keys.shape[-1]
        grouped = (query * call.scale).view(heads, -1, len(self._rows), dim).transpose(1, 2)
        if len(self._rows) < self.size:
            padded = grouped.new_zeros(heads, self.size, *grouped.shape[2:])
            padded[:, self._rows] = grouped
            grouped = padded
        seen = int(self._lengths.max())
        near = keys[:, :, :seen].flatten(0, 1)
        scores = torch.bmm(grouped.flatten(0, 1), near.transpose(1, 2))
        scores = scores.view(heads, self.size, -1, seen)
        sinks = None if call.sinks is None else call.sinks.view(heads, 1, -1, 1)
        weights = weigh(scores, self._hidden(seen, call.window)[:, None], sinks, call)
        mixed = torch.bmm(weights.flatten(0, 1), values[:, :, :seen].flatten(0, 1))
        mixed = mixed.view(heads, self.size, -1, values.shape[-1])
        if len(self._rows) < self.size:
            mixed = mixed[:, self._rows]
        out: Tensor = mixed.transpose(0, 1).flatten(1, 2)
        return out

    def _hidden(self, seen: int, window: int | None) -> Tensor:
        """``[members, seen]`` of 0 and -inf."""
        if window not in self._bias:
            hidden = np.arange(seen) >= self._lengths[:, None]
            if window is not None:
                hidden |= self._queries[:, None] - self._positions[:, :seen] >= window
            bias = torch.zeros(hidden.shape)
            self._bias[window] = bias.masked_fill_(torch.from_numpy(hidden), -torch.inf)
        return self._bias[window]
