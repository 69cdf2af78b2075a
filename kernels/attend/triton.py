"""Attention over work items: one grid for all segments of all sequences.

An item is a block of rows (queries of one kv head's group are rows of one matrix product) and a
piece of one run of keys. Its queries turn once; its loop goes over whole tiles without a mask and
then over the ragged end. A second, small launch adds up the items of each row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ..checks import QUANTISED, check_query, check_store, require
from ..rotation import Turns
from .plan import ITEM, Plan

LOG2E = 1.4426950408889634
# Items whose results are read at a time when they are added up: of few rows, and of many.
GATHERS, FEW_ROWS = (32, 16), 8
# So many items of decoding rows leave the processors half empty: each is given more warps.
FEW = 32


@dataclass(frozen=True, slots=True)
class Store:
    """Keys ``[kv heads, slots, key dim]``, values alike; scales ``[kv heads, slots]`` if any."""

    keys: Tensor
    values: Tensor
    key_scales: Tensor | None = None
    value_scales: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """The score of a key: ``q . k scale``, bounded by ``softcap``.

    ``sinks`` ``[query heads]`` are scores of a key without a value.
    """

    scale: float
    softcap: float | None = None
    sinks: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """How an item is computed: keys a tile, warps, and pipeline stages."""

    tile: int
    warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class Workspace:
    """Room for the results of items; calls of one plan in one stream may share it.

    ``mixed`` ``[items, kv heads, block rows x group, value dim]``, unnormalised; ``stats``
    ``[items, kv heads, block rows x group, 2]``: the highest score in units of log 2, and the sum.
    """

    mixed: Tensor
    stats: Tensor


def attend(
    query: Tensor,
    store: Store,
    plan: Plan,
    score: Score,
    turns: Turns | None = None,
    out: Tensor | None = None,
    logsumexp: Tensor | None = None,
    workspace: Workspace | None = None,
    launch: Launch | None = None,
) -> Tensor:
    """Attention ``[rows, query heads, value dim]`` of rows that each read a part of a key list.

    ``query`` ``[rows, query heads, key dim]`` is rotated at the rows' positions and not scaled;
    ``turns`` turns it back by the delta of a run (None: a layer without positions). A row that
    reads no key is 0. ``logsumexp`` ``[rows, query heads]`` float32 receives that of the scores.
    Raises `KernelArgumentError` before anything is launched.
    """
    check_attend(query, store, plan, turns)
    rows, query_heads, _ = query.shape
    value_dim = store.values.shape[2]
    if out is None:
        out = query.new_empty(rows, query_heads, value_dim)
    require(out.is_contiguous() and out.dtype == query.dtype, "the output must be like the queries")
    require(out.shape == (rows, query_heads, value_dim), "the output must be [rows, heads, dim]")
    if logsumexp is not None:
        require(logsumexp.shape == (rows, query_heads), "logsumexp must be [rows, query heads]")
        require(logsumexp.dtype == torch.float32, "logsumexp must be float32")
    workspace = new_workspace(query, store, plan) if workspace is None else workspace
    launch = best_launch(query, store, plan) if launch is None else launch
    if len(plan.items):
        _launch_items(query, store, plan, score, turns, workspace, launch)
    if rows:
        combine(plan, score, workspace, out, logsumexp)
    return out


def _launch_items(
    query: Tensor,
    store: Store,
    plan: Plan,
    score: Score,
    turns: Turns | None,
    workspace: Workspace,
    launch: Launch,
) -> None:
    heads, _, value_dim = store.values.shape
    group, dim = query.shape[1] // heads, query.shape[2]
    _items[(heads, len(plan.items))](
        query,
        store.keys,
        store.values,
        store.key_scales,
        store.value_scales,
        plan.slots,
        plan.items,
        plan.spans,
        None if turns is None else turns.partner,
        None if turns is None else turns.cos,
        None if turns is None else turns.sin,
        workspace.mixed,
        workspace.stats,
        *strides(store),
        score.scale * LOG2E,
        1.0 if score.softcap is None else score.softcap,
        FIELDS=len(ITEM),
        HEADS=query.shape[1],
        GROUP=group,
        ROWS=plan.block_rows * group,
        BLOCK=packed_rows(query, store, plan),
        TILE=launch.tile,
        DIM=dim,
        WIDTH=triton.next_power_of_2(max(16, dim)),
        VALUE_DIM=value_dim,
        VALUE_WIDTH=triton.next_power_of_2(max(16, value_dim)),
        TURNED=turns is not None,
        SCALED=store.keys.dtype in QUANTISED,
        CAPPED=score.softcap is not None,
        PRECISION=precision(query.dtype),
        CHAINED=chained(query.device),
        num_warps=launch.warps,
        num_stages=launch.stages,
    )


def combine(
    plan: Plan,
    score: Score,
    workspace: Workspace,
    out: Tensor,
    logsumexp: Tensor | None = None,
) -> None:
    """Adds up what the items of each row left in ``workspace``, and its sink."""
    rows, heads, dim = out.shape
    _combine[(heads, rows)](
        workspace.mixed,
        workspace.stats,
        plan.parts,
        score.sinks,
        out,
        logsumexp,
        HEADS=heads,
        GROUP=heads // workspace.mixed.shape[1],
        ROWS=workspace.mixed.shape[2],
        DIM=dim,
        WIDTH=triton.next_power_of_2(max(16, dim)),
        GATHER=GATHERS[rows > FEW_ROWS],
        SUNK=score.sinks is not None,
        LOGGED=logsumexp is not None,
        CHAINED=chained(out.device),
        num_warps=1,
        **({"launch_pdl": True} if chained(out.device) else {}),
    )


def check_attend(query: Tensor, store: Store, plan: Plan, turns: Turns | None) -> None:
    """Raises `KernelArgumentError` unless these arguments fit each other."""
    check_store(store.keys, store.values, store.key_scales, store.value_scales)
    check_query(query, store.keys, plan.rows)
    require(
        plan.slot_limit <= store.keys.shape[1],
        f"a plan for {plan.slot_limit} slots on a store of {store.keys.shape[1]}",
    )
    require(plan.items.device == query.device, "the plan is on another device than the queries")
    if turns is not None:
        turns.check(query.shape[2], query.device)
        require(plan.turns <= len(turns.cos), f"{plan.turns} turns, {len(turns.cos)} known")


def new_workspace(query: Tensor, store: Store, plan: Plan) -> Workspace:
    """Room for all items of ``plan``."""
    heads = store.keys.shape[0]
    shape = (len(plan.items), heads, plan.block_rows * (query.shape[1] // heads))
    kind, device = torch.float32, query.device
    return Workspace(
        torch.empty(*shape, store.values.shape[2], dtype=kind, device=device),
        torch.empty(*shape, 2, dtype=kind, device=device),
    )


def best_launch(query: Tensor, store: Store, plan: Plan) -> Launch:
    """The launch that was measured fastest for these shapes; see README.md."""
    widest = max(store.keys.shape[2], store.values.shape[2])
    row_bytes = widest * query.element_size()
    if row_bytes > 256:  # as many keys as shared memory holds
        return Launch(16 if row_bytes > 512 else 32, 4, 2)
    if packed_rows(query, store, plan) > 16:
        return Launch(64, 4, 5)
    if len(plan.items) <= FEW:
        return Launch(128, 4, 3)
    return Launch(64, 2, 4 if store.keys.dtype in QUANTISED else 2)


def strides(store: Store) -> tuple[int, ...]:
    """Elements from head to head and from slot to slot, of keys, values and scales."""
    return (*store.keys.stride()[:2], *store.values.stride()[:2], store.keys.shape[1])


@cache
def chained(device: torch.device) -> bool:
    """Whether a launch can begin before the one it depends on has ended."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


def precision(dtype: torch.dtype) -> str:
    """How products are made: single precision in three passes of the matrix units."""
    return "tf32x3" if dtype == torch.float32 else "tf32"


def packed_rows(query: Tensor, store: Store, plan: Plan) -> int:
    """Rows of an item's matrix product: a power of two of at least 16."""
    group = query.shape[1] // store.keys.shape[0]
    return max(16, int(triton.next_power_of_2(plan.block_rows * group)))


@triton.jit
def turned_rows(
    query, at, inside, partner, cos, sin, turn,
    DIM: tl.constexpr, WIDTH: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    """Rows of queries at element offsets ``at``, where they are ``inside``, turned by ``turn``."""
    dims = tl.arange(0, WIDTH)
    known = inside[:, None] & (dims < DIM)[None, :]
    x = tl.load(query + at[:, None] + dims[None, :], mask=known, other=0.0)
    if TURNED:
        twin = tl.load(partner + dims, mask=dims < DIM, other=0)
        y = tl.load(query + at[:, None] + twin[None, :], mask=known, other=0.0)
        c = tl.load(cos + turn * DIM + dims, mask=dims < DIM, other=0.0)
        s = tl.load(sin + turn * DIM + dims, mask=dims < DIM, other=0.0)
        x = (x.to(tl.float32) * c[None, :] + y.to(tl.float32) * s[None, :]).to(x.dtype)
    return x


@triton.jit
def stored_rows(
    rows, slot, step, there, DIM: tl.constexpr, WIDTH: tl.constexpr, MASKED: tl.constexpr
):
    """The rows ``[slots, WIDTH]`` of ``slot``; 0 where they are not ``there``."""
    dims = tl.arange(0, WIDTH)
    at = rows + slot[:, None] * step + dims[None, :]
    if MASKED:
        loaded = tl.load(at, mask=there[:, None] & (dims < DIM)[None, :], other=0.0)
    elif WIDTH > DIM:
        loaded = tl.load(at, mask=(dims < DIM)[None, :], other=0.0)
    else:
        loaded = tl.load(at)
    return loaded


@triton.jit
def _tile(
    x, highest, total, mixed, start, stop, low, high,
    keys, values, key_scales, value_scales, slots, key_step, value_step, scale, softcap,
    TILE: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, VALUE_DIM: tl.constexpr,
    VALUE_WIDTH: tl.constexpr, SCALED: tl.constexpr, CAPPED: tl.constexpr, MASKED: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of keys into a block's running maximum, sum and mixture of values."""
    at = start + tl.arange(0, TILE)
    there = at < stop
    slot = tl.load(slots + at, mask=there, other=0).to(tl.int64)
    k = stored_rows(keys, slot, key_step, there, DIM, WIDTH, MASKED)
    v = stored_rows(values, slot, value_step, there, VALUE_DIM, VALUE_WIDTH, MASKED)
    scores = tl.dot(x, k.T.to(x.dtype), input_precision=PRECISION)
    if SCALED:
        scores *= tl.load(key_scales + slot, mask=there, other=0.0)[None, :]
    # Scores times ``unit`` are in units of log 2; multiplied late, they cost no instruction.
    unit = scale
    if CAPPED:
        # tanh(x) = 1 - 2 / (exp(2 x) + 1)
        scores = 1.0 - 2.0 / (tl.exp2(scores * (2.0 * scale / softcap)) + 1.0)
        unit = softcap * 1.4426950408889634
    if MASKED:
        seen = (at[None, :] >= low[:, None]) & (at[None, :] < high[:, None]) & there[None, :]
        scores = tl.where(seen, scores, float("-inf"))
    peak = tl.maximum(highest, tl.max(scores, 1) * unit)
    ground = tl.where(peak == float("-inf"), 0.0, peak) if MASKED else peak
    weights = tl.exp2(scores * unit - ground[:, None])
    shrink = tl.exp2(highest - ground)
    total = total * shrink + tl.sum(weights, 1)
    if SCALED:
        weights *= tl.load(value_scales + slot, mask=there, other=0.0)[None, :]
    mixed *= shrink[:, None]
    mixed = tl.dot(weights.to(x.dtype), v.to(x.dtype), mixed, input_precision=PRECISION)
    return peak, total, mixed


@triton.jit
def _items(
    query, keys, values, key_scales, value_scales, slots, items, spans, partner, cos, sin,
    partial, stats,
    key_plane, key_step, value_plane, value_step, slot_count, scale, softcap,
    FIELDS: tl.constexpr, HEADS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr, TILE: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr,
    VALUE_DIM: tl.constexpr, VALUE_WIDTH: tl.constexpr, TURNED: tl.constexpr,
    SCALED: tl.constexpr, CAPPED: tl.constexpr, PRECISION: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    head, item = tl.program_id(0), tl.program_id(1)
    entry = items + item * FIELDS
    first, rows = tl.load(entry), tl.load(entry + 1)
    begin, end, turn = tl.load(entry + 3), tl.load(entry + 4), tl.load(entry + 5)
    slots += tl.load(entry + 2).to(tl.int64)
    keys += head.to(tl.int64) * key_plane
    values += head.to(tl.int64) * value_plane
    if SCALED:
        key_scales += head.to(tl.int64) * slot_count
        value_scales += head.to(tl.int64) * slot_count

    lines = tl.arange(0, BLOCK)
    row = first + lines // GROUP
    inside = lines < rows * GROUP
    low = tl.load(spans + 2 * row, mask=inside, other=0)
    high = tl.load(spans + 2 * row + 1, mask=inside, other=0)
    place = row.to(tl.int64) * HEADS + head * GROUP + lines % GROUP
    x = turned_rows(query, place * DIM, inside, partner, cos, sin, turn, DIM, WIDTH, TURNED)

    # All rows of the block see the keys [begin, whole); some see those in [whole, end).
    begin = tl.maximum(begin, tl.min(tl.where(inside, low, 2147483647), 0))
    end = tl.minimum(end, tl.max(high, 0))
    begin = tl.minimum(begin, end)  # of an item without rows, too: tiles are loaded ahead from here
    common = tl.minimum(end, tl.min(tl.where(inside, high, 2147483647), 0))
    common = tl.where(tl.max(low, 0) <= begin, common, begin)
    whole = begin + tl.maximum(common - begin, 0) // TILE * TILE

    highest = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    mixed = tl.zeros([BLOCK, VALUE_WIDTH], tl.float32)
    for start in tl.range(begin, whole, TILE):
        highest, total, mixed = _tile(
            x, highest, total, mixed, start, whole, low, high, keys, values, key_scales,
            value_scales, slots, key_step, value_step, scale, softcap,
            TILE, DIM, WIDTH, VALUE_DIM, VALUE_WIDTH, SCALED, CAPPED, False, PRECISION,
        )  # fmt: skip
    for start in tl.range(whole, end, TILE):
        highest, total, mixed = _tile(
            x, highest, total, mixed, start, end, low, high, keys, values, key_scales,
            value_scales, slots, key_step, value_step, scale, softcap,
            TILE, DIM, WIDTH, VALUE_DIM, VALUE_WIDTH, SCALED, CAPPED, True, PRECISION,
        )  # fmt: skip

    dims = tl.arange(0, VALUE_WIDTH)
    known = inside[:, None] & (dims < VALUE_DIM)[None, :]
    line = (item.to(tl.int64) * tl.num_programs(0) + head) * ROWS + lines
    tl.store(partial + line[:, None] * VALUE_DIM + dims[None, :], mixed, mask=known)
    tl.store(stats + line * 2, highest, mask=inside)
    tl.store(stats + line * 2 + 1, total, mask=inside)
    if CHAINED:  # the launch that adds up may begin while the last items end
        gdc_launch_dependents()


@triton.jit
def _combine(
    partial, stats, parts, sinks, out, logsumexp,
    HEADS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, DIM: tl.constexpr,
    WIDTH: tl.constexpr, GATHER: tl.constexpr, SUNK: tl.constexpr, LOGGED: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    """One row of one query head: its items, and its sink."""
    if CHAINED:
        gdc_wait()
    head, row = tl.program_id(0), tl.program_id(1)
    first, last = tl.load(parts + 3 * row), tl.load(parts + 3 * row + 1)
    place = tl.load(parts + 3 * row + 2) * GROUP + head % GROUP
    dims = tl.arange(0, WIDTH)
    highest, total = float("-inf"), 0.0
    mixed = tl.zeros([WIDTH], tl.float32)
    for start in tl.range(first, last, GATHER):
        item = start + tl.arange(0, GATHER)
        known = item < last
        line = (item.to(tl.int64) * (HEADS // GROUP) + head // GROUP) * ROWS + place
        peaks = tl.load(stats + line * 2, mask=known, other=float("-inf"))
        sums = tl.load(stats + line * 2 + 1, mask=known, other=0.0)
        there = known[:, None] & (dims < DIM)[None, :]
        part = tl.load(partial + line[:, None] * DIM + dims[None, :], mask=there, other=0.0)
        peak = tl.maximum(highest, tl.max(peaks, 0))
        ground = tl.where(peak == float("-inf"), 0.0, peak)
        factors, shrink = tl.exp2(peaks - ground), tl.exp2(highest - ground)
        total = total * shrink + tl.sum(sums * factors, 0)
        mixed = mixed * shrink + tl.sum(part * factors[:, None], 0)
        highest = peak
    if SUNK:
        sink = tl.load(sinks + head).to(tl.float32) * 1.4426950408889634
        peak = tl.maximum(highest, sink)
        mixed *= tl.exp2(highest - peak)
        total = total * tl.exp2(highest - peak) + tl.exp2(sink - peak)
        highest = peak
    total = tl.where(total > 0, total, 1.0)
    at = row.to(tl.int64) * HEADS + head
    if LOGGED:
        tl.store(logsumexp + at, (highest + tl.log2(total)) / 1.4426950408889634)
    tl.store(out + at * DIM + dims, (mixed / total).to(out.dtype.element_ty), mask=dims < DIM)
