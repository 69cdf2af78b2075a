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
        monkeypatch.setattr("akv_rsi.engine.gpu.batch.move", move)
        monkeypatch.setattr("akv_rsi.engine.gpu.batch.put", put)
        monkeypatch.setattr("akv_rsi.engine.gpu.backend.put", put)


def attend(
    query: Tensor, store: Store, plan: Plan, score: Score, turns: Turns | None = None, **_: Any
) -> Tensor:
    """What `akv_rsi.kernels.attend.triton.attend` does, item by item."""
    heads, group = store.keys.shape[0], query.shape[1] // store.keys.shape[0]
    out = query.new_zeros(*query.shape[:2], store.values.shape[2])
    for row, ((first, last, _place), (low, high)) in enumerate(
        zip(plan.parts.tolist(), plan.spans.tolist(), strict=True)
    ):
        scores, values = [query.new_empty(heads, group, 0)], []
        for _, _, start, begin, end, turn in plan.items[first:last].tolist():
            x = query[row] if turns is None else turns.apply(query[row], turn)
            slots = plan.slots[start + max(begin, low) : start + min(end, high)].long()
            scores.append(x.view(heads, group, -1) @ store.keys[:, slots].transpose(1, 2))
            values.append(store.values[:, slots])
        seen = torch.cat(scores, -1) * score.scale
        if score.softcap is not None:
            seen = score.softcap * (seen / score.softcap).tanh()
        if score.sinks is not None:
            seen = torch.cat((seen, score.sinks.view(heads, group, 1)), -1)
        if values:
            mixed = torch.cat(values, 1)
            weights = seen.softmax(-1)[..., : mixed.shape[1]]
            out[row] = (weights @ mixed).reshape(heads * group, -1)
    return out


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
    put_rows(store.keys, keys, slots)
    put_rows(store.values, values, slots)
