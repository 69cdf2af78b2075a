"""How much attention each key, and so each page, received: a second, cheap reading of the keys.

`attend` returns the logarithm of each row's normaliser. With it the weight of a key is known from
its score alone, so only keys are read again, and only when somebody asks.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..attend.jit import turned_rows
from ..attend.plan import ITEM, Plan
from ..attend.triton import (
    LOG2E,
    Score,
    Store,
    check_attend,
    packed_rows,
    precision,
    strides,
)
from ..checks import QUANTISED, require
from ..rotation import Turns

TILE = 64


def key_mass(
    query: Tensor,
    store: Store,
    plan: Plan,
    score: Score,
    logsumexp: Tensor,
    turns: Turns | None = None,
) -> Tensor:
    """``[keys of all lists]`` float32: each key's weight, summed over query heads and rows.

    Arguments as for `attend`, which made ``logsumexp``.
    """
    check_attend(query, store, plan, turns)
    require(logsumexp.shape == query.shape[:2], "logsumexp must be [rows, query heads]")
    mass = torch.zeros(len(plan.slots), dtype=torch.float32, device=query.device)
    heads, _, dim = store.keys.shape
    if not len(plan.items):
        return mass
    group = query.shape[1] // heads
    _mass[(heads, len(plan.items))](
        query,
        store.keys,
        store.key_scales,
        plan.slots,
        plan.items,
        plan.spans,
        None if turns is None else turns.partner,
        None if turns is None else turns.cos,
        None if turns is None else turns.sin,
        logsumexp,
        mass,
        *strides(store)[:2],
        store.keys.shape[1],
        score.scale * LOG2E,
        1.0 if score.softcap is None else score.softcap,
        FIELDS=len(ITEM),
        HEADS=query.shape[1],
        GROUP=group,
        BLOCK=packed_rows(query, store, plan),
        TILE=TILE,
        DIM=dim,
        WIDTH=triton.next_power_of_2(max(16, dim)),
        TURNED=turns is not None,
        SCALED=store.keys.dtype in QUANTISED,
        CAPPED=score.softcap is not None,
        PRECISION=precision(query.dtype),
    )
    return mass


def page_mass(mass: Tensor, plan: Plan, page_size: int, pages: int) -> Tensor:
    """``[pages]``: the mass of the slots of each page."""
    page = plan.slots.long() // page_size
    return mass.new_zeros(pages).index_add_(0, page, mass)


@triton.jit
def _mass(
    query, keys, key_scales, slots, items, spans, partner, cos, sin, logsumexp, mass,
    key_plane, key_step, slot_count, scale, softcap,
    FIELDS: tl.constexpr, HEADS: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
    TILE: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, TURNED: tl.constexpr,
    SCALED: tl.constexpr, CAPPED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    head, item = tl.program_id(0), tl.program_id(1)
    entry = items + item * FIELDS
    first, rows = tl.load(entry), tl.load(entry + 1)
    begin, end, turn = tl.load(entry + 3), tl.load(entry + 4), tl.load(entry + 5)
    offset = tl.load(entry + 2).to(tl.int64)
    keys += head.to(tl.int64) * key_plane
    if SCALED:
        key_scales += head.to(tl.int64) * slot_count
    lines, dims = tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    row = first + lines // GROUP
    inside = lines < rows * GROUP
    low = tl.load(spans + 2 * row, mask=inside, other=0)
    high = tl.load(spans + 2 * row + 1, mask=inside, other=0)
    line = row.to(tl.int64) * HEADS + head * GROUP + lines % GROUP
    x = turned_rows(query, line * DIM, inside, partner, cos, sin, turn, DIM, WIDTH, TURNED)
    norm = tl.load(logsumexp + line, mask=inside, other=0.0) * 1.4426950408889634
    for start in tl.range(begin, end, TILE):
        at = start + tl.arange(0, TILE)
        there = at < end
        slot = tl.load(slots + offset + at, mask=there, other=0).to(tl.int64)
        known = there[None, :] & (dims < DIM)[:, None]
        k = tl.load(keys + slot[None, :] * key_step + dims[:, None], mask=known, other=0.0)
        scores = tl.dot(x, k.to(x.dtype), input_precision=PRECISION)
        if SCALED:
            scores *= tl.load(key_scales + slot, mask=there, other=0.0)[None, :]
        scores *= scale
        if CAPPED:
            bound = softcap * 1.4426950408889634
            scores = bound * (1.0 - 2.0 / (tl.exp2(scores * (2.0 / softcap)) + 1.0))
        seen = (at[None, :] >= low[:, None]) & (at[None, :] < high[:, None]) & there[None, :]
        weights = tl.where(seen & inside[:, None], tl.exp2(scores - norm[:, None]), 0.0)
        tl.atomic_add(mass + offset + at, tl.sum(weights, 0), mask=there)
