"""One forward pass: its rows, where their KV goes, and what each of them attends to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from akv_rsi.engine.attention import LayerCall, Segment
from akv_rsi.engine.dense import DenseGroup
from akv_rsi.engine.pool import Ints, PagePool
from akv_rsi.engine.rotary import Angles, Rotary
from akv_rsi.engine.view import Keys


class Group(Protocol):
    """Sequences that decode side by side."""

    def begin(self, rows: Ints, fed: Ints) -> None:
        """Takes ``fed`` ``[n, 3]``, token, position and slot, for the members in ``rows``."""
        ...


class Copies:
    """Turned copies of keys, and copies of their values, to be made layer by layer."""

    def __init__(self, parts: Sequence[tuple[Ints, Ints, Ints]]) -> None:
        sources, targets, self._deltas = (np.concatenate(part) for part in zip(*parts, strict=True))
        self._sources, self._targets = torch.from_numpy(sources), torch.from_numpy(targets)
        self._angles: dict[str, Angles] = {}

    def make(self, pool: PagePool, rotary: Rotary, call: LayerCall) -> None:
        """One layer's copies."""
        kv = pool.layers[call.layer]
        kv.values.copy(self._sources, self._targets)
        if call.rope is None:
            kv.keys.copy(self._sources, self._targets)
            return
        if call.rope not in self._angles:
            self._angles[call.rope] = rotary.angles(self._deltas, call.rope)
        turned = rotary.turn(kv.keys.read(self._sources), self._angles[call.rope])
        kv.keys.write(self._targets, turned)


@dataclass(slots=True)
class Batch:
    """Rows of any number of sequences. Segments and dense groups own disjoint stretches of rows."""

    pool: PagePool
    rotary: Rotary
    segments: list[Segment] = field(default_factory=list)
    groups: list[tuple[Group, slice]] = field(default_factory=list)
    size: int = 0
    kept: list[int] = field(default_factory=list)
    _tokens: list[Ints] = field(default_factory=list)
    _positions: list[Ints] = field(default_factory=list)
    _slots: list[Ints] = field(default_factory=list)
    _write: Tensor | None = None
    _copies: list[tuple[Ints, Ints, Ints]] = field(default_factory=list)
    _copied: Copies | None = None

    def add_rows(self, tokens: Ints, positions: Ints, slots: Ints) -> slice:
        """Rows whose KV goes to ``slots``."""
        rows = slice(self.size, self.size + len(tokens))
        self._tokens.append(tokens)
        self._positions.append(positions)
        self._slots.append(slots)
        self.size = rows.stop
        return rows

    def add_segment(
        self, tokens: Ints, positions: Ints, slots: Ints, keys: Keys, limits: Ints
    ) -> slice:
        """Rows that read one key list; row ``r`` its first ``limits[r]`` keys."""
        rows = self.add_rows(tokens, positions, slots)
        self.segments.append(Segment(rows.start, rows.stop, keys, limits, positions))
        return rows

    def add_copies(self, sources: Ints, targets: Ints, deltas: Ints) -> None:
        """Has the KV in ``sources`` copied to ``targets``, each key turned by its delta.

        Sources hold keys as they were born, earlier or in this pass.
        """
        self._copies.append((sources, targets, deltas))

    def seat(self, segments: Sequence[Segment], room: int) -> DenseGroup:
        """Has the keys of ``segments`` copied into a working set with ``room`` columns to spare."""
        group = DenseGroup([segment.keys for segment in segments], room)
        for row, segment in enumerate(segments):
            segment.source = (group, row)
        return group

    @property
    def kept_rows(self) -> Tensor:
        """The rows whose logits are wanted."""
        return torch.tensor(self.kept, dtype=torch.long)

    def keep(self, rows: Sequence[int]) -> slice:
        """Asks for the logits of ``rows``; returns where in the pass's logits they come."""
        start = len(self.kept)
        self.kept.extend(rows)
        return slice(start, len(self.kept))

    @property
    def tokens(self) -> Tensor:
        """``[1, rows]`` token ids."""
        return torch.from_numpy(np.concatenate(self._tokens))[None]

    @property
    def positions(self) -> Tensor:
        """``[1, rows]`` positions."""
        return torch.from_numpy(np.concatenate(self._positions))[None]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, call: LayerCall) -> Tensor:
        """Attention of one layer: ``[rows, query heads, value dim]``.

        ``query`` is ``[query heads, rows, key dim]``; ``key`` and ``value`` go by kv heads.
        """
        if self._write is None:
            self._write = torch.from_numpy(np.concatenate(self._slots))
        kv = self.pool.layers[call.layer]
        key, value = kv.keys.write(self._write, key), kv.values.write(self._write, value)
        if self._copies:
            self._copied = self._copied or Copies(self._copies)
            self._copied.make(self.pool, self.rotary, call)
        query = (query.transpose(0, 1) * call.scale).contiguous()
        if not self.segments and len(self.groups) == 1:
            return self._attend_group(self.groups[0][0], query, key, value, call)
        out = query.new_empty(*query.shape[:2], value.shape[-1])
        for group, rows in self.groups:
            inside = query[rows], key[:, rows], value[:, rows]
            out[rows] = self._attend_group(group, *inside, call)
        for segment in self.segments:
            segment.attend(query, out, self.pool, self.rotary, call)
        return out

    def _attend_group(
        self, group: Group, query: Tensor, key: Tensor, value: Tensor, call: LayerCall
    ) -> Tensor:
        assert isinstance(group, DenseGroup)
        return group.attend(query, key, value, self.pool, self.rotary, call)
