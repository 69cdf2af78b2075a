"""Attention over paged keys in plain torch: what a row reads, and the arithmetic.

A `Segment` is a stretch of rows that read one key list, each row a prefix of it (a suffix of that
prefix under a sliding window). One forward pass may hold many segments of many sequences, and
several of one sequence: queries are partitioned at op boundaries, and since all rows of a layer are
written to the pool before any is read, a later segment sees what an earlier one computes. So a
whole history, refreshes included, is recovered in one pass, without a dense mask.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from akv_rsi.engine.pool import Ints, PagePool
from akv_rsi.engine.rotary import Angles, Rotary
from akv_rsi.engine.view import DeltaRun, Keys

# Rows are taken in blocks, so that a block's scores stay in the processor's cache and a long
# prefill does not compute the upper triangle.
BLOCK = 128


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


def weigh(scores: Tensor, bias: Tensor | None, sinks: Tensor | None, call: LayerCall) -> Tensor:
    """Probabilities from scaled scores ``[..., keys]``, which are overwritten.

    ``bias`` (0 or -inf) broadcasts against the last keys, ``sinks`` against one key more.
    """
    if call.softcap is not None:
        scores = (scores / call.softcap).tanh_().mul_(call.softcap)
    if bias is not None:
        scores[..., scores.shape[-1] - bias.shape[-1] :] += bias
    if sinks is None:
        return torch.softmax(scores, -1, dtype=torch.float32).to(scores.dtype)
    sinks = sinks.to(scores.dtype).expand(*scores.shape[:-1], 1)
    whole = torch.softmax(torch.cat((scores, sinks), -1), -1, dtype=torch.float32)
    return whole[..., :-1].to(scores.dtype)


@dataclass(slots=True)
class Segment:
    """Rows ``[start, stop)`` of a pass and the keys they read.

    Row ``r`` sees the first ``limits[r - start]`` keys; ``queries`` are the rows' positions.
    """

    start: int
    stop: int
    keys: Keys
    limits: Ints
    queries: Ints
    _index: Tensor | None = None
    _bias: dict[tuple[int, int, int | None], Tensor | None] = field(default_factory=dict)
    _angles: dict[tuple[str, bool], list[Angles] | Angles] = field(default_factory=dict)

    def attend(
        self, query: Tensor, out: Tensor, pool: PagePool, rotary: Rotary, call: LayerCall
    ) -> None:
        """Writes ``out[start:stop]`` ``[rows, query heads, value dim]`` for ``query`` of a pass.

        ``query`` is ``[query heads, rows of the pass, key dim]``, rotated at the rows' positions.
        """
        if self._index is None:
            self._index = torch.from_numpy(self.keys.slots)
        keys = pool.keys[call.layer].index_select(1, self._index)
        values = pool.values[call.layer].index_select(1, self._index)
        runs = self.keys.runs
        if call.rope is None or runs == ((0, keys.shape[1], 0),):
            runs = (DeltaRun(0, keys.shape[1], 0),)
        elif len(runs) * (self.stop - self.start) > keys.shape[1]:
            # More query copies than keys: turning the gathered keys is less work.
            keys = rotary.turn(keys, self._key_angles(rotary, call.rope))
            runs = (DeltaRun(0, keys.shape[1], 0),)
        for first in range(self.start, self.stop, BLOCK):
            rows = slice(first, min(first + BLOCK, self.stop))
            seen = int(self.limits[rows.start - self.start : rows.stop - self.start].max())
            scores = self._scores(query[:, rows], keys[:, :seen], runs, rotary, call)
            bias = self._row_bias(rows, seen, call.window)
            heads, group, count, _ = scores.shape
            sinks = None if call.sinks is None else call.sinks.view(heads, group, 1, 1)
            weights = weigh(scores, bias, sinks, call)
            mixed = torch.bmm(weights.reshape(heads, group * count, seen), values[:, :seen])
            mixed = mixed.view(heads * group, count, -1)
            out[rows] = mixed.transpose(0, 1)

    def _scores(
        self,
        query: Tensor,
        keys: Tensor,
        runs: tuple[DeltaRun, ...],
        rotary: Rotary,
        call: LayerCall,
    ) -> Tensor:
        """Scaled scores ``[kv heads, group, rows, keys]``; the query turns back per delta run."""
        heads, seen, dim = keys.shape
        count = query.shape[1]
        query = query * call.scale
        scores = query.new_empty(heads, query.shape[0] // heads * count, seen)
        for number, (start, end, delta) in enumerate(runs):
            if start >= seen:
                break
            turned = query
            if delta:
                assert call.rope is not None
                turned = rotary.turn(query, self._run_angles(rotary, call.rope)[number])
            part = slice(start, min(end, seen))
            grouped = turned.reshape(heads, -1, dim)
            scores[:, :, part] = torch.bmm(grouped, keys[:, part].transpose(1, 2))
        return scores.view(heads, -1, count, seen)

    def _run_angles(self, rotary: Rotary, kind: str) -> list[Angles]:
        """Per delta run, the angles that turn a query back by it."""
        if (kind, False) not in self._angles:
            deltas = np.array([-run.delta for run in self.keys.runs])
            cos, sin = rotary.angles(deltas, kind)
            self._angles[kind, False] = [
                Angles(cos[i : i + 1], sin[i : i + 1]) for i in range(len(deltas))
            ]
        found = self._angles[kind, False]
        assert isinstance(found, list)
        return found

    def _key_angles(self, rotary: Rotary, kind: str) -> Angles:
        """Per key, the angles that move it to where it is seen."""
        if (kind, True) not in self._angles:
            self._angles[kind, True] = key_angles(self.keys, rotary, kind)
        found = self._angles[kind, True]
        assert isinstance(found, Angles)
        return found

    def _row_bias(self, rows: slice, seen: int, window: int | None) -> Tensor | None:
        """``[rows, last keys]`` of 0 and -inf: from the first key that some row does not see."""
        key = (rows.start, seen, window)
        if key not in self._bias:
            inside = slice(rows.start - self.start, rows.stop - self.start)
            self._bias[key] = hidden_bias(
                self.limits[inside], self.queries[inside], self.keys.positions[:seen], window
            )
        return self._bias[key]


def key_angles(keys: Keys, rotary: Rotary, kind: str) -> Angles:
    """The angles ``[keys, columns]`` that move each key from its birth position to its place."""
    sizes = torch.tensor([run.end - run.start for run in keys.runs])
    cos, sin = rotary.angles(np.array([run.delta for run in keys.runs]), kind)
    return Angles(cos.repeat_interleave(sizes, 0), sin.repeat_interleave(sizes, 0))


def hidden_bias(limits: Ints, queries: Ints, keys: Ints, window: int | None) -> Tensor | None:
    """0 where row ``r`` sees a key, -inf where not, from the first column where that differs.

    Row ``r``, at position ``queries[r]``, sees the first ``limits[r]`` of the ``keys`` (positions),
    of them those less than ``window`` positions back.
    """
    windowed = window is not None and len(keys) > 0 and queries.max() - keys[0] >= window
    first = 0 if windowed else int(limits.min())
    if first >= len(keys):
        return None
    hidden = np.arange(first, len(keys)) >= limits[:, None]
    if windowed and window is not None:
        hidden |= queries[:, None] - keys[first:] >= window
    bias = torch.zeros(hidden.shape)
    return bias.masked_fill_(torch.from_numpy(hidden), -torch.inf)
