"""Engines that run as on a GPU. On a processor plain torch carries out the plans of the kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from akv_rsi.kernels.attend.plan import Plan
from akv_rsi.kernels.attend.triton import Score, Store
from akv_rsi.kernels.layer.reference import put_rows
from akv_rsi.kernels.move.triton import Moves
from akv_rsi.kernels.rotation import Turns
from torch import Tensor

from akv_rsi.engine.gpu.backend import GpuBackend

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def paged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("akv_rsi.engine.engine.open_backend", GpuBackend)
    if DEVICE == "cpu":
        monkeypatch.setattr("akv_rsi.engine.gpu.batch.attend", attend)
        monkeypatch.setattr("akv_rsi.engine.gpu.segments.attend", attend)
        monkeypatch.setattr("akv_rsi.engine.gpu.segments.key_mass", key_mass)
        monkeypatch.setattr("akv_rsi.engine.gpu.batch.move", move)
        monkeypatch.setattr("akv_rsi.engine.gpu.batch.put", put)
        monkeypatch.setattr("akv_rsi.engine.gpu.backend.put", put)


def attend(
    query: Tensor, store: Store, plan: Plan, score: Score, turns: Turns | None = None, **_: Any
) -> Tensor:
    """What `akv_rsi.kernels.attend.triton.attend` does, row by row."""
    out = query.new_zeros(*query.shape[:2], store.values.shape[2])
    for row in range(len(query)):
        seen, weights = weighed(row, query, store, plan, score, turns)
        values = plain(store.values, store.value_scales, plan.slots[seen].long())
        out[row] = (weights @ values).flatten(0, 1)
    return out


def key_mass(
    query: Tensor,
    store: Store,
    plan: Plan,
    score: Score,
    logsumexp: Tensor,
    turns: Turns | None = None,
) -> Tensor:
    """What `akv_rsi.kernels.mass.triton.key_mass` does."""
    mass = torch.zeros(len(plan.slots))
    for row in range(len(query)):
        seen, weights = weighed(row, query, store, plan, score, turns)
        mass[seen] += weights.sum((0, 1))
    return mass


def weighed(
    row: int, query: Tensor, store: Store, plan: Plan, score: Score, turns: Turns | None
) -> tuple[Tensor, Tensor]:
    """Which entries of the slot table a row reads, and their weights ``[heads, group, entries]``.

    Item by item, as the plan has it.
    """
    heads, group = store.keys.shape[0], query.shape[1] // store.keys.shape[0]
    (first, last, _), (low, high) = plan.parts[row].tolist(), plan.spans[row].tolist()
    scores, places = [query.new_empty(heads, group, 0)], [torch.empty(0, dtype=torch.long)]
    for _, _, start, begin, end, turn in plan.items[first:last].tolist():
        x = query[row] if turns is None else turns.apply(query[row], turn)
        begin = max(begin, low)
        places.append(start + torch.arange(begin, max(begin, min(end, high))))
        keys = plain(store.keys, store.key_scales, plan.slots[places[-1]].long())
        scores.append(x.view(heads, group, -1) @ keys.transpose(1, 2))
    seen = torch.cat(scores, -1) * score.scale
    if score.softcap is not None:
        seen = score.softcap * (seen / score.softcap).tanh()
    if score.sinks is not None:
        seen = torch.cat((seen, score.sinks.view(heads, group, 1)), -1)
    entries = torch.cat(places)
    return entries, seen.softmax(-1)[..., : len(entries)]


def move(source: Store, target: Store, moves: Moves, turns: Turns | None = None) -> None:
    """What `akv_rsi.kernels.move.triton.move` does."""
    keys = source.keys[:, moves.source.long()]
    if turns is not None:
        assert moves.turn is not None
        keys = turns.apply(keys, moves.turn.long())
    target.keys[:, moves.target.long()] = keys
    target.values[:, moves.target.long()] = source.values[:, moves.source.long()]


def put(store: Store, keys: Tensor, values: Tensor, slots: Tensor) -> None:
    """What `akv_rsi.kernels.layer.triton.put` does."""
    put_rows(store.keys, store.key_scales, keys, slots)
    put_rows(store.values, store.value_scales, values, slots)


def plain(rows: Tensor, scales: Tensor | None, slots: Tensor) -> Tensor:
    """What lies in ``slots``, scales multiplied in."""
    picked = rows[:, slots]
    return picked if scales is None else picked * scales[:, slots, None]
