"""The working set: dense copies of what each sequence of a group sees, one row per sequence.

Pages scatter a sequence's keys; gathering them anew for every decoded token costs more than
attention itself. So sequences that run together get their visible keys copied once, turned to the
positions they are seen at, into one tensor per layer; each decode step appends a column. The pool
keeps the truth: a group is dropped and rebuilt at will.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from akv_rsi.engine.attention import Gathered, LayerCall, weigh
from akv_rsi.engine.pool import NULL_SLOT, Ints, PagePool
from akv_rsi.engine.rotary import Angles, Rotary
from akv_rsi.engine.view import DeltaRun, Keys


class DenseGroup:
    """Keys ``[kv heads, members, capacity, key dim]`` per layer, values alike.

    Layers are copied at their first use: by then the pass that fills the pool has come to them.
    """

    def __init__(self, members: Sequence[Keys], room: int) -> None:
        self.size = len(members)
        self._lengths = np.array([len(keys.slots) for keys in members])
        self.capacity = int(self._lengths.max()) + room
        shape = (self.size, self.capacity)
        slots = np.full(shape, NULL_SLOT)
        deltas = np.zeros(shape, dtype=np.int64)
        self._positions = np.zeros(shape, dtype=np.int64)
        for row, keys in enumerate(members):
            slots[row, : len(keys.slots)] = keys.slots
            self._positions[row, : len(keys.slots)] = keys.positions
            for run in keys.runs:
                deltas[row, run.start : run.end] = run.delta
        self._slots = torch.from_numpy(slots.reshape(-1))
        self._deltas, which = np.unique(deltas, return_inverse=True)
        self._which = torch.from_numpy(which.reshape(-1))
        self._angles: dict[str, Angles] = {}
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}
        self._rows = self._columns = torch.arange(self.size)
        self._queries = np.zeros(self.size, dtype=np.int64)
        self._bias: dict[int | None, Tensor] = {}

    @property
    def columns(self) -> int:
        """Keys it has space for, over all members."""
        return self.size * self.capacity

    @property
    def has_room(self) -> bool:
        """Whether every member can take another token."""
        return bool(self._lengths.max() < self.capacity)

    def row(self, number: int, call: LayerCall, pool: PagePool, rotary: Rotary) -> Gathered:
        """The keys and values of one member, seen where they are."""
        keys, values = self._layer(call, pool, rotary)
        length = int(self._lengths[number])
        still = (DeltaRun(0, length, 0),)
        return Gathered(keys[:, number, :length], values[:, number, :length], still)

    def begin(self, rows: Ints, fed: Ints) -> None:
        """Takes ``fed`` ``[n, 3]``, token, position and slot, for the members in ``rows``."""
        lengths, positions = self._lengths, fed[:, 1]
        self._positions[rows, lengths[rows]] = positions
        self._rows = torch.from_numpy(rows)
        self._columns = torch.from_numpy(rows * self.capacity + lengths[rows])
        self._queries[rows] = positions
        lengths[rows] += 1
        self._bias.clear()

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        pool: PagePool,
        rotary: Rotary,
        call: LayerCall,
    ) -> Tensor:
        """``[rows, query heads, value dim]`` for scaled queries ``[rows, query heads, key dim]``.

        ``key`` and ``value`` ``[kv heads, rows, dim]`` are the rows' own and join the set.
        """
        keys, values = self._layer(call, pool, rotary)
        keys.flatten(1, 2).index_copy_(1, self._columns, key)
        values.flatten(1, 2).index_copy_(1, self._columns, value)
        count, _, dim = query.shape
        heads, seen = keys.shape[0], int(self._lengths.max())
        grouped = query.view(count, heads, -1, dim).transpose(0, 1)
        if count < self.size:
            padded = grouped.new_zeros(heads, self.size, *grouped.shape[2:])
            padded[:, self._rows] = grouped
            grouped = padded
        near = keys[:, :, :seen].flatten(0, 1)
        scores = torch.bmm(grouped.flatten(0, 1), near.transpose(1, 2))
        scores = scores.view(heads, self.size, -1, seen)
        sinks = None if call.sinks is None else call.sinks.view(heads, 1, -1, 1)
        weights = weigh(scores, self._hidden(seen, call.window), sinks, call)
        mixed = torch.bmm(weights.flatten(0, 1), values[:, :, :seen].flatten(0, 1))
        mixed = mixed.view(heads, self.size, -1, values.shape[-1])
        if count < self.size:
            mixed = mixed[:, self._rows]
        return mixed.transpose(0, 1).reshape(count, -1, values.shape[-1])

    def _layer(self, call: LayerCall, pool: PagePool, rotary: Rotary) -> tuple[Tensor, Tensor]:
        if call.layer not in self._layers:
            kv = pool.layers[call.layer]
            keys, values = kv.keys.read(self._slots), kv.values.read(self._slots)
            if call.rope is not None and self._deltas.any():
                keys = rotary.turn(keys, self._key_angles(rotary, call.rope))
            shape = (self.size, self.capacity, -1)
            self._layers[call.layer] = (
                keys.view(len(keys), *shape),
                values.view(len(values), *shape),
            )
        return self._layers[call.layer]

    def _key_angles(self, rotary: Rotary, kind: str) -> Angles:
        if kind not in self._angles:
            cos, sin = rotary.angles(self._deltas, kind)
            self._angles[kind] = Angles(cos[self._which], sin[self._which])
        return self._angles[kind]

    def _hidden(self, seen: int, window: int | None) -> Tensor:
        """``[members, 1, seen]`` of 0 and -inf."""
        if window not in self._bias:
            hidden = np.arange(seen) >= self._lengths[:, None]
            if window is not None:
                hidden |= self._queries[:, None] - self._positions[:, :seen] >= window
            bias = torch.zeros(self.size, 1, seen)
            self._bias[window] = bias.masked_fill_(torch.from_numpy(hidden)[:, None], -torch.inf)
        return self._bias[window]
