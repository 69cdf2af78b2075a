"""What the engine asks of a GPU: batches and seats of its own, and decode steps as graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from akv_rsi.config import EngineConfig
from akv_rsi.engine.attention import LayerCall
from akv_rsi.engine.batch import Batch
from akv_rsi.engine.gpu.batch import DeviceBatch, PagedGroup, read_rows
from akv_rsi.engine.gpu.seats import PagedSeatings
from akv_rsi.engine.gpu.segments import store_of
from akv_rsi.engine.gpu.tables import DecodeTables
from akv_rsi.engine.gpu.turns import TurnTables
from akv_rsi.engine.model import Model
from akv_rsi.engine.pool import Ints, PagePool
from akv_rsi.errors import UnsupportedModel
from akv_rsi.kernels.layer.triton import put


@dataclass(slots=True)
class Step:
    """A decode step of the first ``rows`` rows of the tables, as the model's forward sees it."""

    tables: DecodeTables
    rows: int

    @property
    def kept_rows(self) -> Tensor:
        """All rows: of the tables too, since a graph reads them wherever they were."""
        return self.tables.order[: self.rows]

    @property
    def tokens(self) -> Tensor:
        """``[1, rows]`` token ids."""
        return self.tables.feed[0:1, : self.rows]

    @property
    def positions(self) -> Tensor:
        """``[1, rows]`` positions."""
        return self.tables.feed[1:2, : self.rows]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, call: LayerCall) -> Tensor:
        """See `Batch.attend`."""
        pool, write = self.tables.pool, self.tables.feed[2, : self.rows]
        put(store_of(pool, call.layer), key, value, write)
        return read_rows(self.tables, query.transpose(0, 1).contiguous(), call)


class GpuBackend:
    """Tables and graphs of one engine; they outlive a reset of it."""

    def __init__(self, model: Model, config: EngineConfig, pool: PagePool) -> None:
        self._model = model
        self._pool = pool
        shape = model.layers[0].shape
        if any(layer.shape != shape for layer in model.layers):
            raise UnsupportedModel("its layers differ in shape, which the GPU back end cannot")
        self._turns = TurnTables(model.rotary, shape.key_dim, pool.device)
        slots = pool.keys[0].shape[1]
        self._tables = DecodeTables(
            pool,
            self._turns,
            size=config.max_batch,
            capacity=min(model.max_positions, slots) + 2,
            heads=shape.heads,
            windows=tuple(dict.fromkeys(layer.window for layer in model.layers)),
            kinds=tuple({layer.rope: None for layer in model.layers if layer.rope is not None}),
        )
        self._graphs: dict[tuple[int, int, bool], tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self._memory: Any = None

    def clear(self) -> None:
        """A cold engine."""
        self._tables.clear()

    def seatings(self) -> PagedSeatings:
        """Seats in the tables."""
        return PagedSeatings(PagedGroup(self._tables))

    def batch(self) -> DeviceBatch:
        """An empty pass."""
        self._tables.settle()
        return DeviceBatch(self._pool, self._model.rotary, tables=self._turns)

    def forward(self, batch: Batch) -> Tensor:
        """Logits ``[kept rows, vocabulary]``: replayed when the pass is nothing but a step."""
        assert isinstance(batch, DeviceBatch)
        if not batch.is_step or not self._tables.rows:
            logits = self._model.forward(batch)
            batch.tell_mass()
            return logits
        batch.copy_ahead(self._model.layers)
        rows = self._fed_rows(batch)
        self._tables.send()
        # Sent ahead of the graph: what follows it is then queued before it has run.
        kept = torch.from_numpy(rows[batch.kept]).to(self._pool.device, non_blocking=True)
        logits = self._replayed(min(self._tables.size, 1 << int(rows.max()).bit_length()))
        return logits.index_select(0, kept)

    def _fed_rows(self, batch: DeviceBatch) -> Ints:
        """The table row of each row of a step, all of which the tables know by now."""
        rows = np.empty(batch.size, dtype=np.int64)
        if not batch.groups:
            self._tables.begin()
        for group, inside in batch.groups:
            assert isinstance(group, PagedGroup)
            rows[inside] = group.rows
        for row, segment in batch.asked:
            rows[segment.start] = row
            self._tables.ask(row, *batch.fed(segment.start))
        return rows

    def _replayed(self, rows: int) -> Tensor:
        """Logits of a step of so many rows; captured when such a one is first met."""
        key = (rows, self._tables.items, self._tables.turned)
        step = Step(self._tables, rows)
        if self._pool.device.type == "cpu":  # kernels are interpreted
            return self._once(step)
        if key not in self._graphs:
            self._once(step)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._memory):
                logits = self._once(step)
            self._memory = self._memory or graph.pool()
            self._graphs[key] = graph, logits
        graph, logits = self._graphs[key]
        graph.replay()
        return logits

    def _once(self, step: Step) -> Tensor:
        """Everything a step does on the device. Done twice, it changes nothing."""
        self._tables.unpack()
        return self._model.forward(step)
