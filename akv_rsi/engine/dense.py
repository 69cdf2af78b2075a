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

from akv_rsi.engine.attention import Gathered, LayerCall, multiply_by_rows, weigh
from akv_rsi.engine.pool import NULL_SLOT, Ints, PagePool
from akv_rsi.engine.rotary import Angles, Rotary
from akv_rsi.engine.view import DeltaRun, Keys

# Steps after which a group's values are turned on their side: they pay for it in about as many.
PATIENCE = 8


class _Layer:
    """One layer's keys ``[kv heads, members, capacity, key dim]``, and values alike.

    Values `lay` sideways are ``[kv heads, members, value dim, capacity]``: in single precision what
    few queries read of them is summed up 1.6 times as fast.
    """

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys, self._values = keys, values
        self._sideways = False

    def lay(self) -> None:
        """Turns the values on their side, once."""
        if not self._sideways:
            self._values, self._sideways = self._values.transpose(2, 3).contiguous(), True

    def append(self, rows: Tensor, places: Tensor, key: Tensor, value: Tensor) -> None:
        """``key`` and ``value`` ``[kv heads, n, dim]`` for ``places`` of the members ``rows``."""
        columns = rows * self.keys.shape[2] + places
        self.keys.flatten(1, 2).index_copy_(1, columns, key)
        if self._sideways:
            self._values[:, rows, :, places] = value.transpose(0, 1)
        else:
            self._values.flatten(1, 2).index_copy_(1, columns, value)

    def values(self, number: int, length: int) -> Tensor:
        """``[kv heads, length, value dim]`` of one member."""
        values = self._values[:, number]
        return values[..., :length].transpose(1, 2) if self._sideways else values[:, :length]

    def mixed(self, weights: Tensor) -> Tensor:
        """``[kv heads x members, group, value dim]`` for weights of the first values."""
        seen = weights.shape[-1]
        if self._sideways:
            values = self._values[..., :seen].flatten(0, 1)
            return torch.bmm(values, weights.transpose(1, 2)).transpose(1, 2)
        return torch.bmm(weights, self._values[:, :, :seen].flatten(0, 1))


class DenseGroup:
    """Copies for all layers, made at their first use.

    By then the pass that fills the pool has come to them.
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
        self._layers: dict[int, _Layer] = {}
        self._rows = self._places = torch.arange(self.size)
        self._steps = 0
        self._queries = np.zeros(self.size, dtype=np.int64)
        self._bias: dict[int | None, Tensor | None] = {}

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
        layer = self._layer(call, pool, rotary)
        length = int(self._lengths[number])
        still = (DeltaRun(0, length, 0),)
        return Gathered(layer.keys[:, number, :length], layer.values(number, length), still)

    def begin(self, rows: Ints, fed: Ints) -> None:
        """Takes ``fed`` ``[n, 3]``, token, position and slot, for the members in ``rows``."""
        lengths, positions = self._lengths, fed[:, 1]
        self._positions[rows, lengths[rows]] = positions
        self._rows = torch.from_numpy(rows)
        self._places = torch.from_numpy(lengths[rows])
        self._steps += 1
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
        layer = self._layer(call, pool, rotary)
        if self._steps > PATIENCE and query.dtype == torch.float32:
            layer.lay()
        layer.append(self._rows, self._places, key, value)
        count, _, dim = query.shape
        heads, seen = len(key), int(self._lengths.max())
        grouped = query.view(count, heads, -1, dim).transpose(0, 1)
        if count < self.size:
            padded = grouped.new_zeros(heads, self.size, *grouped.shape[2:])
            padded[:, self._rows] = grouped
            grouped = padded
        near = layer.keys[:, :, :seen].flatten(0, 1)
        scores = multiply_by_rows(grouped.flatten(0, 1), near)
        scores = scores.view(heads, self.size, -1, seen)
        sinks = None if call.sinks is None else call.sinks.view(heads, 1, -1, 1)
        weights = weigh(scores, self._hidden(seen, call.window), sinks, call)
        mixed = layer.mixed(weights.flatten(0, 1))
        mixed = mixed.reshape(heads, self.size, -1, value.shape[-1])
        if count < self.size:
            mixed = mixed[:, self._rows]
        return mixed.transpose(0, 1).reshape(count, -1, value.shape[-1])

    def _layer(self, call: LayerCall, pool: PagePool, rotary: Rotary) -> _Layer:
        if call.layer not in self._layers:
            kv = pool.layers[call.layer]
            keys, values = kv.keys.read(self._slots), kv.values.read(self._slots)
            if call.rope is not None and self._deltas.any():
                keys = rotary.turn(keys, self._key_angles(rotary, call.rope))
            shape = (self.size, self.capacity, -1)
            self._layers[call.layer] = _Layer(
                keys.view(len(keys), *shape), values.view(len(values), *shape)
            )
        return self._layers[call.layer]

    def _key_angles(self, rotary: Rotary, kind: str) -> Angles:
        if kind not in self._angles:
            cos, sin = rotary.angles(self._deltas, kind)
            self._angles[kind] = Angles(cos[self._which], sin[self._which])
        return self._angles[kind]

    def _hidden(self, seen: int, window: int | None) -> Tensor | None:
        """``[members, 1, seen]`` of 0 and -inf; None where nothing is hidden."""
        if window not in self._bias:
            hidden = np.arange(seen) >= self._lengths[:, None]
            if window is not None:
                hidden |= self._queries[:, None] - self._positions[:, :seen] >= window
            self._bias[window] = None
            if hidden.any():
                bias = torch.zeros(self.size, 1, seen)
                bias.masked_fill_(torch.from_numpy(hidden)[:, None], -torch.inf)
                self._bias[window] = bias
        return self._bias[window]
