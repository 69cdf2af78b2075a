"""Page copies and repos copies, and how exact attention is."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from ..attend.reference import attend_rows
from ..attend.triton import Store
from ..move.triton import make_gather, move
from .attention import in_place, staged
from .cases import QUERY_HEADS, SCORE, make_case
from .measure import seconds

KEYS, LAYERS = 262144, 32


def copies() -> dict[str, float]:
    """Keys and values of many pages in random order, moved as they are and turned."""
    case = make_case(1, KEYS, runs=8)
    target = Store(torch.empty_like(case.store.keys), torch.empty_like(case.store.values))
    slots, turn = case.lists[0].slots, np.repeat(np.arange(8), KEYS // 8)
    plain, turned = make_gather(slots, None, "cuda"), make_gather(slots, turn, "cuda")
    page = seconds([lambda: move(case.store, target, plain)])
    repos = seconds([lambda: move(case.store, target, turned, case.key_turns)])
    moved = 2 * case.read_bytes
    return {"page_copy_bytes_per_s": moved / page, "repos_copy_bytes_per_s": moved / repos}


def repos_of_a_context(retained: int = 32768) -> dict[str, float]:
    """What a Repos of a 32k context of a model of 32 such layers moves: by views, by copies."""
    case = make_case(1, retained, runs=8, holes=0.1)
    target = Store(torch.empty_like(case.store.keys), torch.empty_like(case.store.values))
    turn = np.repeat(np.arange(8), retained // 8)
    moves = make_gather(case.lists[0].slots, turn, "cuda")
    calls = [lambda: move(case.store, target, moves, case.key_turns)] * LAYERS
    return {
        "view_bytes": 0,
        "copy_bytes": 2 * LAYERS * case.read_bytes,
        "copy_ms": seconds(calls) * LAYERS * 1e3,
    }


def accuracy() -> dict[str, Any]:
    """Relative errors against double precision: ours and SDPA's on the same inputs."""
    case = make_case(2, 4096, runs=1, holes=0.1)
    exact = attend_rows(
        case.query, case.store.keys, case.store.values, case.lists, case.tasks, SCORE.scale
    )
    keys, values = case.dense()
    query = case.query.view(2, QUERY_HEADS, 1, -1)
    stock = F.scaled_dot_product_attention(query, keys, values, enable_gqa=True)
    moved = make_case(2, 4096, rows=64, runs=8, holes=0.1)
    moved_exact = attend_rows(
        moved.query, moved.store.keys, moved.store.values, moved.lists, moved.tasks, SCORE.scale,
        moved.query_turns,
    )  # fmt: skip
    return {
        "decode": _error(in_place(case)(), exact),
        "sdpa": _error(stock.view_as(case.query), exact),
        "in_place_8_runs": _error(in_place(moved, rows=16)(), moved_exact),
        "staged_8_runs": _error(staged(moved)(), moved_exact),
    }


def _error(out: torch.Tensor, exact: torch.Tensor) -> float:
    return float((out.double() - exact).norm() / exact.norm())
