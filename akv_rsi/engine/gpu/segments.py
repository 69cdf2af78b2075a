"""Segments of a pass on the GPU: all of them in one launch, long ones from staged keys."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from akv_rsi.engine.attention import LayerCall, Segment
from akv_rsi.engine.gpu.turns import TurnTables
from akv_rsi.engine.pool import Ints, PagePool
from akv_rsi.kernels.attend.plan import KeyList, Plan, Run, Task, balanced, make_plan
from akv_rsi.kernels.attend.triton import Score, Store, Workspace, attend, new_workspace
from akv_rsi.kernels.mass.triton import key_mass
from akv_rsi.kernels.prefill.plan import StagedPlan, make_staged_plan
from akv_rsi.kernels.prefill.triton import attend_staged, best_launch, block_rows, stage
from akv_rsi.kernels.rotation import Turns

# A segment with this many rows reads staged keys: see docs/benchmarks for the measurement.
STAGED_ROWS = 256
# Staged keys and values of one layer take at most this much; what does not fit is read in place.
STAGED_BYTES = 2**30
# Rows of an item's matrix product when a segment is read in place.
BLOCK = 64


class DeviceSegments:
    """The segments of one pass: key lists, plans for each window, turns for each rotary kind."""

    def __init__(self, segments: Sequence[Segment], pool: PagePool, tables: TurnTables) -> None:
        self._pool = pool
        self._tables = tables
        self._deltas: Ints = np.unique([run.delta for s in segments for run in s.keys.runs])
        staged, room = set[int](), STAGED_BYTES // (pool.read_bytes // len(pool.keys))
        for number, segment in enumerate(segments):
            size = len(segment.keys.slots)
            if segment.stop - segment.start >= STAGED_ROWS and size <= room:
                staged.add(number)
                room -= size
        few = [segment for number, segment in enumerate(segments) if number not in staged]
        self._parts = [
            _Part([segments[number] for number in sorted(staged)], self._deltas),
            _Part(few, self._deltas),
        ]
        self._turns: dict[tuple[str, int], Turns | None] = {}
        self._asking = [segment for segment in segments if segment.mass is not None]
        self._last = _Part([_last_row(segment) for segment in self._asking], self._deltas)
        self._mass: Tensor | None = None

    def tell_mass(self) -> None:
        """Adds what was measured to ``mass`` of the segments that have one."""
        if self._mass is None:
            return
        at, measured = 0, self._mass.cpu()
        for segment in self._asking:
            assert segment.mass is not None
            segment.mass += measured[at : at + len(segment.mass)]
            at += len(segment.mass)

    def attend(self, query: Tensor, out: Tensor, call: LayerCall) -> None:
        """Writes the segments' rows of ``out``; ``query`` ``[rows, heads, dim]`` is not scaled."""
        store = store_of(self._pool, call.layer)
        score = Score(call.scale, call.softcap, call.sinks)
        long, short = self._parts
        if long.segments:
            long.write(out, self._staged(long, long.rows_of(query), store, score, call))
        if short.segments:
            short.write(out, self._in_place(short, short.rows_of(query), store, score, call))
        if self._asking:
            mass = self._mass_of(self._last, self._last.rows_of(query), store, score, call)
            self._mass = mass if self._mass is None else self._mass + mass

    def _staged(
        self, part: _Part, query: Tensor, store: Store, score: Score, call: LayerCall
    ) -> Tensor:
        plan = part.staged_plan(call.window, query, store)
        dense = stage(store, plan, self._turned(call.rope, 1), query)
        out: Tensor = attend_staged(query, dense, plan, score)
        return out

    def _in_place(
        self, part: _Part, query: Tensor, store: Store, score: Score, call: LayerCall
    ) -> Tensor:
        plan, workspace = part.plan(call.window, query, store)
        turns = self._turned(call.rope, -1)
        out: Tensor = attend(query, store, plan, score, turns, workspace=workspace)
        return out

    def _mass_of(
        self, part: _Part, query: Tensor, store: Store, score: Score, call: LayerCall
    ) -> Tensor:
        plan, workspace = part.plan(call.window, query, store)
        turns = self._turned(call.rope, -1)
        norm = query.new_empty(query.shape[:2], dtype=torch.float32)
        attend(query, store, plan, score, turns, logsumexp=norm, workspace=workspace)
        mass: Tensor = key_mass(query, store, plan, score, norm, turns)
        return mass

    def _turned(self, kind: str | None, sign: int) -> Turns | None:
        """Turns of keys (``sign`` 1) or queries (-1); None where nothing has moved."""
        if kind is None or not self._deltas.any():
            return None
        if (kind, sign) not in self._turns:
            self._turns[kind, sign] = self._tables.turns(sign * self._deltas, kind)
        return self._turns[kind, sign]


class _Part:
    """Segments that are read the same way; their rows as a batch of their own."""

    def __init__(self, segments: Sequence[Segment], deltas: Ints) -> None:
        self.segments = segments
        self._lists = [_key_list(segment, deltas) for segment in segments]
        self._rows = _concatenated([np.arange(s.start, s.stop) for s in segments])
        self._index: Tensor | None = None
        self._plans: dict[int | None, tuple[Plan, Workspace]] = {}
        self._staged: dict[int | None, StagedPlan] = {}

    def rows_of(self, query: Tensor) -> Tensor:
        """Its rows of a whole batch's."""
        if np.array_equal(self._rows, np.arange(len(query))):
            return query
        if self._index is None:
            self._index = torch.from_numpy(self._rows).to(query.device)
        return query.index_select(0, self._index)

    def write(self, out: Tensor, rows: Tensor) -> None:
        """Puts its rows where they belong in a whole batch's."""
        if self._index is None:
            out.copy_(rows)
        else:
            out.index_copy_(0, self._index, rows)

    def plan(self, window: int | None, query: Tensor, store: Store) -> tuple[Plan, Workspace]:
        """Work items for layers with that window."""
        if window not in self._plans:
            heads = store.keys.shape[0]
            rows = max(1, BLOCK // (query.shape[1] // heads))
            rows = min(rows, max(s.stop - s.start for s in self.segments))
            blocks = [(len(s.keys.slots), -(-(s.stop - s.start) // rows)) for s in self.segments]
            work = sum(size * count for size, count in blocks)
            sizes = balanced(work, heads, processors(query.device), rows)
            slots = store.keys.shape[1]
            plan = make_plan(self._lists, self._tasks(window), sizes, slots, query.device)
            self._plans[window] = plan, new_workspace(query, store, plan)
        return self._plans[window]

    def staged_plan(self, window: int | None, query: Tensor, store: Store) -> StagedPlan:
        """Row blocks over staged keys for layers with that window."""
        if window not in self._staged:
            rows = block_rows(query.shape[1] // store.keys.shape[0], best_launch(query, store))
            tasks = self._tasks(window)
            self._staged[window] = make_staged_plan(self._lists, tasks, rows, query.device)
        return self._staged[window]

    def _tasks(self, window: int | None) -> list[Task]:
        tasks, start = [], 0
        for number, segment in enumerate(self.segments):
            low = first_seen(segment.keys.positions, segment.queries, window)
            tasks.append(Task(start, number, np.stack((low, segment.limits), 1)))
            start += len(segment.limits)
        return tasks


def store_of(pool: PagePool, layer: int) -> Store:
    """One layer's KV, as kernels read and write it."""
    keys, values = pool.layers[layer]
    return Store(keys.data, values.data, keys.scales, values.scales)


@cache
def processors(device: torch.device) -> int:
    """Multiprocessors of a GPU; 1 where kernels are interpreted."""
    if device.type == "cpu":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count


def first_seen(positions: Ints, queries: Ints, window: int | None) -> Ints:
    """The first key each query sees: keys stand at ascending ``positions``."""
    if window is None:
        return np.zeros_like(queries)
    return np.searchsorted(positions, queries - window + 1)


def _last_row(segment: Segment) -> Segment:
    """Its last row alone."""
    last, limits, queries = segment.stop - 1, segment.limits[-1:], segment.queries[-1:]
    return Segment(last, segment.stop, segment.keys, limits, queries)


def _key_list(segment: Segment, deltas: Ints) -> KeyList:
    turns = np.searchsorted(deltas, [run.delta for run in segment.keys.runs]).tolist()
    pieces = zip(segment.keys.runs, turns, strict=True)
    return KeyList(segment.keys.slots, [Run(run.start, run.end, turn) for run, turn in pieces])


def _concatenated(parts: Sequence[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
