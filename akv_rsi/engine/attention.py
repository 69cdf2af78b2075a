"""Attention over paged keys in plain torch: what a row reads, and the arithmetic.

A `Segment` is a stretch of rows that read one key list, each row a prefix of it (a suffix of that
prefix under a sliding window). One forward pass may hold many segments of many sequences, and
several of one sequence: queries are partitioned at op boundaries, and since all rows of a layer are
written to the pool before any is read, a later segment sees what an earlier one computes. So a
whole history, refreshes included, is recovered in one pass, without a dense mask.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from akv_rsi.engine.pool import Ints, PagePool
from akv_rsi.engine.rotary import Angles, Rotary
from akv_rsi.engine.view import DeltaRun, Keys

# Rows are taken in blocks, so that a block's scores stay in the processor's cache and a long
# prefill does not compute the upper triangle.
BLOCK = 128
# A run of deltas takes a product and a turn of its own: as long as turning so many keys.
RUN_COST = 192


class LayerCall(NamedTuple):
    """What a layer's attention asks for.

    ``rope`` is the rotary kind, or None for a layer without positions; ``window`` counts positions;
    ``softcap`` bounds scores; ``sinks`` ``[query heads]`` are scores of a key without a value.
    """

    layer: int
    rope: str | None
    scale: float
    window: int | None = None
    softcap: float | None = None
    sinks: Tensor | None = None


class Gathered(NamedTuple):
    """Keys and values ``[kv heads, keys, dim]`` of a key list; queries turn back by its runs."""

    keys: Tensor
    values: Tensor
    runs: tuple[DeltaRun, ...]


class Source(Protocol):
    """Where a segment's keys come from when they need not be gathered."""

    def row(self, number: int, call: LayerCall, pool: PagePool, rotary: Rotary) -> Gathered:
        """The keys of row ``number``, already where they are seen."""
        ...


@dataclass(slots=True)
class Segment:
    """Rows ``[start, stop)`` of a pass and the keys they read.

    Row ``r`` sees the first ``limits[r - start]`` keys; ``queries`` are the rows' positions.
    ``source`` names a working set and the row in it that holds these keys. To ``mass`` ``[keys]``,
    where given, the last row's attention is added, over all layers and heads.
    """

    start: int
    stop: int
    keys: Keys
    limits: Ints
    queries: Ints
    source: tuple[Source, int] | None = None
    mass: Tensor | None = None
    _blocks: list[tuple[int, int, int]] = field(init=False)
    _index: Tensor | None = None
    _bias: dict[tuple[int, int | None], Tensor | None] = field(default_factory=dict)
    _angles: dict[tuple[str, bool], list[Angles]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        firsts = range(self.start, self.stop, BLOCK)
        limits = [self.limits[i : i + BLOCK].max() for i in range(0, len(self.limits), BLOCK)]
        self._blocks = [
            (first, min(first + BLOCK, self.stop), int(seen))
            for first, seen in zip(firsts, limits, strict=True)
        ]

    def attend(
        self, query: Tensor, out: Tensor, pool: PagePool, rotary: Rotary, call: LayerCall
    ) -> None:
        """Writes rows ``[start, stop)`` of ``out`` ``[rows, query heads, value dim]``.

        ``query`` ``[rows, query heads, key dim]`` is scaled, and rotated at the rows' positions.
        """
        keys, values, runs = self._gather(pool, rotary, call)
        heads = keys.shape[0]
        sinks = None if call.sinks is None else call.sinks.view(heads, 1, -1, 1)
        for first, last, seen in self._blocks:
            scores = self._scores(query[first:last], keys[:, :seen], runs, rotary, call)
            bias = self._row_bias(first, last, seen, call.window)
            weights = weigh(scores, bias, sinks, call)
            if self.mass is not None and last == self.stop:
                self.mass[:seen] += weights[:, -1].sum((0, 1), dtype=torch.float32)
            mixed = torch.bmm(weights.view(heads, -1, seen), values[:, :seen])
            out[first:last] = by_row(mixed, last - first)

    def _gather(self, pool: PagePool, rotary: Rotary, call: LayerCall) -> Gathered:
        if self.source is not None:
            source, row = self.source
            return source.row(row, call, pool, rotary)
        if self._index is None:
            self._index = torch.from_numpy(self.keys.slots)
        kv = pool.layers[call.layer]
        keys, values = kv.keys.read(self._index), kv.values.read(self._index)
        runs = self.keys.runs
        still = (DeltaRun(0, keys.shape[1], 0),)
        if call.rope is None:
            runs = still
        elif runs != still and len(runs) * (self.stop - self.start + RUN_COST) > keys.shape[1]:
            # Turning the gathered keys is less work than turning queries run by run.
            keys, runs = rotary.turn(keys, self._key_angles(rotary, call.rope)), still
        return Gathered(keys, values, runs)

    def _scores(
        self,
        query: Tensor,
        keys: Tensor,
        runs: tuple[DeltaRun, ...],
        rotary: Rotary,
        call: LayerCall,
    ) -> Tensor:
        """Scores ``[kv heads, rows, group, keys]``; the query turns back for each run of deltas."""
        heads, seen, _ = keys.shape
        if len(runs) == 1 and runs[0].delta == 0:
            scores = torch.bmm(by_head(query, heads), keys.transpose(1, 2))
            return scores.view(heads, query.shape[0], -1, seen)
        assert call.rope is not None
        pieces = []
        for (start, end, delta), angles in zip(
            runs, self._run_angles(rotary, call.rope), strict=True
        ):
            if start < seen:
                part = keys[:, start : min(end, seen)].transpose(1, 2)
                turned = query
                if delta:
                    turned = rotary.turn(query.transpose(0, 1), angles).transpose(0, 1)
                pieces.append(torch.bmm(by_head(turned, heads), part))
        return torch.cat(pieces, -1).view(heads, query.shape[0], -1, seen)

    def _run_angles(self, rotary: Rotary, kind: str) -> list[Angles]:
        """Per run of deltas, the angles that turn a query back by it."""
        if (kind, False) not in self._angles:
            cos, sin = rotary.angles(np.array([-run.delta for run in self.keys.runs]), kind)
            pairs = zip(cos[:, None], sin[:, None], strict=True)
            self._angles[kind, False] = [Angles(*pair) for pair in pairs]
        return self._angles[kind, False]

    def _key_angles(self, rotary: Rotary, kind: str) -> Angles:
        """Per key, the angles that move it to where it is seen."""
        if (kind, True) not in self._angles:
            sizes = torch.tensor([run.end - run.start for run in self.keys.runs])
            cos, sin = rotary.angles(np.array([run.delta for run in self.keys.runs]), kind)
            each = Angles(cos.repeat_interleave(sizes, 0), sin.repeat_interleave(sizes, 0))
            self._angles[kind, True] = [each]
        return self._angles[kind, True][0]

    def _row_bias(self, first: int, last: int, seen: int, window: int | None) -> Tensor | None:
        """``[rows, 1, last keys]`` of 0 and -inf: from the first key that some row does not see."""
        if (first, window) not in self._bias:
            inside = slice(first - self.start, last - self.start)
            self._bias[first, window] = _hidden_bias(
                self.limits[inside], self.queries[inside], self.keys.positions[:seen], window
            )
        return self._bias[first, window]


def by_head(rows: Tensor, heads: int) -> Tensor:
    """``[rows, query heads, dim]`` as ``[kv heads, rows x group, dim]``: queries of one kv head."""
    count, _, dim = rows.shape
    return rows.reshape(count, heads, -1, dim).transpose(0, 1).reshape(heads, -1, dim)


def by_row(mixed: Tensor, count: int) -> Tensor:
    """The reverse: ``[kv heads, rows x group, dim]`` as ``[rows, query heads, dim]``."""
    heads, _, dim = mixed.shape
    return mixed.view(heads, count, -1, dim).transpose(0, 1).reshape(count, -1, dim)


def multiply_by_rows(few: Tensor, many: Tensor) -> Tensor:
    """``few @ many^T`` of ``[n, rows, dim]``, where ``many`` has many more rows.

    Other than in single precision, a transposed right-hand side is copied before it is multiplied.
    """
    if few.dtype == torch.float32:
        return torch.bmm(few, many.transpose(1, 2))
    return torch.bmm(many, few.transpose(1, 2)).transpose(1, 2).contiguous()


def weigh(scores: Tensor, bias: Tensor | None, sinks: Tensor | None, call: LayerCall) -> Tensor:
    """Probabilities from scores ``[..., keys]``, which are overwritten.

    ``bias`` (0 or -inf) broadcasts against the last keys, ``sinks`` against one key more.
    """
    if call.softcap is not None:
        scores = (scores / call.softcap).tanh_().mul_(call.softcap)
    if bias is not None:
        scores[..., scores.shape[-1] - bias.shape[-1] :].add_(bias)
    if sinks is None:
        if scores.dtype == torch.float32:
            return torch.softmax(scores, -1)
        return torch.softmax(scores, -1, dtype=torch.float32).to(scores.dtype)
    sinks = sinks.to(scores.dtype).expand(*scores.shape[:-1], 1)
    whole = torch.softmax(torch.cat((scores, sinks), -1), -1, dtype=torch.float32)
    return whole[..., :-1].to(scores.dtype).contiguous()


def _hidden_bias(limits: Ints, queries: Ints, keys: Ints, window: int | None) -> Tensor | None:
    """0 where row ``r`` sees a key, -inf where not, from the first column where that differs.

    Row ``r``, at position ``queries[r]``, sees the first ``limits[r]`` of the ``keys`` (positions),
    of them those less than ``window`` positions back.
    """
    windowed = window is not None and queries.max() - keys[0] >= window
    first = 0 if windowed else int(limits.min())
    if first >= len(keys):
        return None
    hidden = np.arange(first, len(keys)) >= limits[:, None]
    if windowed and window is not None:
        hidden |= queries[:, None] - keys[first:] >= window
    bias = torch.zeros(len(limits), 1, len(keys) - first)
    return bias.masked_fill_(torch.from_numpy(hidden)[:, None], -torch.inf)
