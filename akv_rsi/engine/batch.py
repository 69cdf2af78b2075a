"""One forward pass: its rows, where their KV goes, and what each of them attends to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from akv_rsi.engine.attention import LayerCall, Segment
from akv_rsi.engine.dense import DenseGroup
from akv_rsi.engine.pool import Ints, PagePool
from akv_rsi.engine.rotary import Rotary
from akv_rsi.engine.view import Keys


@dataclass(slots=True)
class Batch:
    """Rows of any number of sequences. Segments and dense groups own disjoint stretches of rows."""

    pool: PagePool
    rotary: Rotary
    segments: list[Segment] = field(default_factory=list)
    groups: list[tuple[DenseGroup, slice]] = field(default_factory=list)
    size: int = 0
    kept: list[int] = field(default_factory=list)
    _tokens: list[Ints] = field(default_factory=list)
    _positions: list[Ints] = field(default_factory=list)
    _slots: list[Ints] = field(default_factory=list)
    _write: Tensor | None = None

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

    def seat(self, segments: Sequence[Segment], room: int) -> DenseGroup:
        """Has the keys of ``segments`` copied into a working set with ``room`` columns to spare."""
        group = DenseGroup([segment.keys for segment in segments], room)
        for row, segment in enumerate(segments):
            segment.source = (group, row)
        return group

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
        self.pool.keys[call.layer].index_copy_(1, self._write, key)
        self.pool.values[call.layer].index_copy_(1, self._write, value)
        query = (query.transpose(0, 1) * call.scale).contiguous()
        out = query.new_empty(*query.shape[:2], value.shape[-1])
        for group, rows in self.groups:
            out[rows] = group.attend(
                query[rows], key[:, rows], value[:, rows], self.pool, self.rotary, call
            )
        for segment in self.segments:
            segment.attend(query, out, self.pool, self.rotary, call)
        return out
