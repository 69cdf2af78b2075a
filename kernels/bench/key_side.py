"""The way not taken: keys are turned as they are loaded, and queries stay as they are.

Decoding only, of plain keys that turn by halves: enough to compare with turning queries back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..attend.plan import ITEM, Plan
from ..attend.triton import LOG2E, Workspace, best_launch, combine, new_workspace, strides
from .cases import DIM, KV_HEADS, QUERY_HEADS, SCORE, Case


def keys_turned(case: Case, plan: Plan) -> Callable[[], Any]:
    """Attention of ``case`` as ``plan`` cuts it, its keys turned to where they are seen."""
    store, turns, launch = case.store, case.key_turns, best_launch(case.query, case.store, plan)
    room: Workspace = new_workspace(case.query, store, plan)
    out = torch.empty_like(case.query)

    def call() -> Tensor:
        _items[(KV_HEADS, len(plan.items))](
            case.query,
            store.keys,
            store.values,
            plan.slots,
            plan.items,
            turns.cos,
            turns.sin,
            room.mixed,
            room.stats,
            *strides(store)[:4],
            SCORE.scale * LOG2E,
            FIELDS=len(ITEM),
            HEADS=QUERY_HEADS,
            GROUP=QUERY_HEADS // KV_HEADS,
            TILE=launch.tile,
            HALF=DIM // 2,
            num_warps=launch.warps,
            num_stages=launch.stages,
        )
        combine(plan, SCORE, room, out)
        return out

    return call


@triton.jit
def _items(
    query, keys, values, slots, items, cos, sin, partial, stats,
    key_plane, key_step, value_plane, value_step, scale,
    FIELDS: tl.constexpr, HEADS: tl.constexpr, GROUP: tl.constexpr, TILE: tl.constexpr,
    HALF: tl.constexpr,
):  # fmt: skip
    head, item = tl.program_id(0), tl.program_id(1)
    entry = items + item * FIELDS
    begin, end, turn = tl.load(entry + 3), tl.load(entry + 4), tl.load(entry + 5)
    slots += tl.load(entry + 2).to(tl.int64)
    keys += head.to(tl.int64) * key_plane
    values += head.to(tl.int64) * value_plane
    lines, near, dims = tl.arange(0, 16), tl.arange(0, HALF), tl.arange(0, 2 * HALF)
    inside = lines < GROUP
    place = tl.load(entry).to(tl.int64) * HEADS + head * GROUP + lines
    at = query + place[:, None] * 2 * HALF + near[None, :]
    low = tl.load(at, mask=inside[:, None], other=0.0)
    high = tl.load(at + HALF, mask=inside[:, None], other=0.0)
    angle = turn * 2 * HALF + near
    low_cos, high_cos = tl.load(cos + angle), tl.load(cos + HALF + angle)
    low_sin, high_sin = tl.load(sin + angle), tl.load(sin + HALF + angle)
    highest = tl.full([16], float("-inf"), tl.float32)
    total = tl.zeros([16], tl.float32)
    mixed = tl.zeros([16, 2 * HALF], tl.float32)
    for start in tl.range(begin, end, TILE):
        column = start + tl.arange(0, TILE)
        there = column < end
        slot = tl.load(slots + column, mask=there, other=0).to(tl.int64)
        lines_at = keys + slot[:, None] * key_step + near[None, :]
        k_low = tl.load(lines_at, mask=there[:, None], other=0.0).to(tl.float32)
        k_high = tl.load(lines_at + HALF, mask=there[:, None], other=0.0).to(tl.float32)
        turned_low = (k_low * low_cos[None, :] + k_high * low_sin[None, :]).to(low.dtype)
        turned_high = (k_high * high_cos[None, :] + k_low * high_sin[None, :]).to(low.dtype)
        scores = tl.dot(high, turned_high.T, tl.dot(low, turned_low.T))
        scores = tl.where(there[None, :], scores, float("-inf"))
        peak = tl.maximum(highest, tl.max(scores, 1) * scale)
        weights = tl.exp2(scores * scale - peak[:, None])
        shrink = tl.exp2(highest - peak)
        total = total * shrink + tl.sum(weights, 1)
        v_at = values + slot[:, None] * value_step + dims[None, :]
        v = tl.load(v_at, mask=there[:, None], other=0.0)
        mixed = tl.dot(weights.to(v.dtype), v, mixed * shrink[:, None])
        highest = peak
    line = (item.to(tl.int64) * tl.num_programs(0) + head) * GROUP + lines
    tl.store(partial + line[:, None] * 2 * HALF + dims[None, :], mixed, mask=inside[:, None])
    tl.store(stats + line * 2, highest, mask=inside)
    tl.store(stats + line * 2 + 1, total, mask=inside)
