"""Random problems for the kernels, and what the kernels make of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from akv_rsi.kernels.attend.plan import KeyList, Run, Sizes, Task, make_plan
from akv_rsi.kernels.attend.reference import attend_rows
from akv_rsi.kernels.attend.triton import Score, Store, attend
from akv_rsi.kernels.prefill.plan import make_staged_plan
from akv_rsi.kernels.prefill.triton import attend_staged, best_launch, block_rows, stage
from akv_rsi.kernels.rotation import Turns, rotary_turns
from torch import Tensor

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@dataclass(frozen=True)
class Shape:
    heads: int = 1
    group: int = 1
    dim: int = 32
    value_dim: int | None = None
    rotary_dim: int | None = None
    interleaved: bool = False
    dtype: torch.dtype = torch.float32
    softcap: float | None = None
    sunk: bool = False
    window: int | None = None
    stored: torch.dtype | None = None  # the quantised type, if any


@dataclass
class Problem:
    shape: Shape
    query: Tensor
    store: Store
    lists: list[KeyList]
    tasks: list[Task]
    score: Score
    query_turns: Turns
    key_turns: Turns

    def expected(self) -> Tensor:
        return attend_rows(
            self.query.cpu(),
            plain(self.store.keys, self.store.key_scales),
            plain(self.store.values, self.store.value_scales),
            self.lists,
            self.tasks,
            self.score.scale,
            self.turns_on("cpu", self.query_turns),
            self.score.softcap,
            None if self.score.sinks is None else self.score.sinks.cpu(),
        )

    def attended(self, sizes: Sizes, logsumexp: Tensor | None = None) -> Tensor:
        plan = make_plan(self.lists, self.tasks, sizes, self.store.keys.shape[1], DEVICE)
        out = self.poisoned()
        return attend(self.query, self.store, plan, self.score, self.query_turns, out, logsumexp)

    def staged(self) -> Tensor:
        launch = best_launch(self.query, self.store)
        rows = block_rows(self.shape.group, launch)
        plan = make_staged_plan(self.lists, self.tasks, rows, DEVICE)
        dense = stage(self.store, plan, self.key_turns, self.query)
        return attend_staged(self.query, dense, plan, self.score, self.poisoned(), launch)

    def poisoned(self) -> Tensor:
        """An output that shows what was not written."""
        width = self.store.values.shape[2]
        return self.query.new_full((*self.query.shape[:2], width), torch.nan)

    @staticmethod
    def turns_on(device: str, turns: Turns) -> Turns:
        return Turns(turns.partner.to(device), turns.cos.to(device), turns.sin.to(device))


def plain(rows: Tensor, scales: Tensor | None) -> Tensor:
    """Stored rows as numbers, on the CPU."""
    if scales is None:
        return rows.cpu()
    return rows.cpu().float() * scales.cpu()[..., None]


def quantise(rows: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Rows in a small type, with one scale per slot and head."""
    top = 127.0 if dtype == torch.int8 else 448.0
    scales = rows.float().abs().amax(-1).clamp_min(1e-8) / top
    scaled = rows.float() / scales[..., None]
    return (scaled.round() if dtype == torch.int8 else scaled).to(dtype), scales


def make_problem(
    shape: Shape, lengths: Sequence[Sequence[int]], rows: Sequence[int], seed: int = 0
) -> Problem:
    """One list for each entry of ``lengths``, its runs that long; task ``i`` has ``rows[i]`` rows.

    The rows of a task read one key more each, up to all keys of the list.
    """
    random, slots = np.random.default_rng(seed), 8 + sum(map(sum, lengths))
    generator = torch.Generator().manual_seed(seed)
    free = random.permutation(np.arange(1, slots))
    lists, tasks, deltas = [], [], [0]
    start = used = 0
    for runs, count in zip(lengths, rows, strict=True):
        size = sum(runs)
        edges = np.cumsum([0, *runs])
        turns = range(len(deltas), len(deltas) + len(runs))
        deltas.extend(random.integers(-500, 500, len(runs)).tolist())
        pieces = zip(edges[:-1].tolist(), edges[1:].tolist(), turns, strict=True)
        lists.append(KeyList(free[used : used + size], [Run(*piece) for piece in pieces]))
        high = np.clip(size - count + 1 + np.arange(count), 0, size)
        low = np.zeros_like(high) if shape.window is None else np.clip(high - shape.window, 0, None)
        tasks.append(Task(start, len(lists) - 1, np.stack((low, high), 1)))
        start, used = start + count, used + size

    def draw(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator).to(DEVICE, shape.dtype)

    value_dim = shape.dim if shape.value_dim is None else shape.value_dim
    store = Store(draw(shape.heads, slots, shape.dim), draw(shape.heads, slots, value_dim))
    store.keys[:, 0] = store.values[:, 0] = torch.nan  # where nobody should look
    if shape.stored is not None:
        keys, key_scales = quantise(store.keys, shape.stored)
        values, value_scales = quantise(store.values, shape.stored)
        store = Store(keys, values, key_scales, value_scales)
    heads = shape.heads * shape.group
    score = Score(shape.dim**-0.5, shape.softcap, draw(heads) if shape.sunk else None)
    angles = np.array(deltas)
    kind = (shape.dim, shape.rotary_dim, shape.interleaved)
    return Problem(
        shape,
        draw(start, heads, shape.dim),
        store,
        lists,
        tasks,
        score,
        rotary_turns(-angles, *kind, device=DEVICE),
        rotary_turns(angles, *kind, device=DEVICE),
    )


def difference(out: Tensor, expected: Tensor) -> float:
    """Norm of the error over the norm of what was expected; NaN never passes a comparison."""
    return float((out.cpu().double() - expected).norm() / expected.norm())


def varied(shape: Shape, **changes: object) -> Shape:
    return replace(shape, **changes)  # type: ignore[arg-type]
