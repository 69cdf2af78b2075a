"""Many rows over staged keys: bulk copies of contiguous tiles, products of whole warpgroups."""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ..attend.triton import LOG2E, Score, Store, precision
from ..checks import QUANTISED, check_query, check_store, require
from ..move.triton import Moves, move
from ..rotation import Turns
from .plan import BLOCK, StagedPlan


@dataclass(frozen=True, slots=True)
class Launch:
    """How a block is computed: its packed rows, keys a tile, warps, stages of the pipeline."""

    block: int
    tile: int
    warps: int
    stages: int
    specialised: bool = False


def block_rows(group: int, launch: Launch) -> int:
    """Rows of queries a block takes when ``group`` query heads share a kv head."""
    return max(1, launch.block // group)


def best_launch(query: Tensor, store: Store) -> Launch:
    """The launch that was measured fastest for these shapes; see README.md."""
    widest = max(store.keys.shape[2], store.values.shape[2])
    group = query.shape[1] // store.keys.shape[0]
    row_bytes = widest * query.element_size()
    if row_bytes > 256:  # as many keys as shared memory holds
        tile = 16 if row_bytes > 512 else 32
        return Launch(max(64, triton.next_power_of_2(group)), tile, 4, 2)
    return Launch(max(128, triton.next_power_of_2(group)), 64, 4, 2)


def stage(store: Store, plan: StagedPlan, turns: Turns | None, like: Tensor) -> Store:
    """The key lists of ``plan`` as a dense store of the type of ``like``; keys seen where they are.

    ``turns`` turn keys (not queries); None: a layer without positions.
    """
    heads, _, dim = store.keys.shape
    room = max(1, plan.keys)
    dense = Store(
        like.new_empty(heads, room, dim), like.new_empty(heads, room, store.values.shape[2])
    )
    moves = plan.moves
    if turns is None:
        moves = Moves(moves.source, moves.target, None, moves.limits, moves.overlap)
    move(store, dense, moves, turns)
    return dense


def attend_staged(
    query: Tensor,
    dense: Store,
    plan: StagedPlan,
    score: Score,
    out: Tensor | None = None,
    launch: Launch | None = None,
) -> Tensor:
    """Attention ``[rows, query heads, value dim]`` over what `stage` made of the plan's lists.

    ``query`` ``[rows, query heads, key dim]`` is rotated at the rows' positions and not scaled. A
    row that reads no key is 0. Raises `KernelArgumentError` before anything is launched.
    """
    launch = best_launch(query, dense) if launch is None else launch
    check_store(dense.keys, dense.values, None, None)
    require(dense.keys.is_contiguous() and dense.values.is_contiguous(), "stages are contiguous")
    check_query(query, dense.keys, plan.rows)
    (heads, keys, dim), value_dim = dense.keys.shape, dense.values.shape[2]
    rows, query_heads, _ = query.shape
    group = query_heads // heads
    require(keys >= plan.keys, f"{plan.keys} keys are planned, {keys} staged")
    require(dense.keys.dtype not in QUANTISED, "staged keys are not quantised")
    require(heads * keys < 2**31, f"{heads} x {keys} staged keys: stage fewer lists at a time")
    require(plan.block_rows * group <= launch.block, "the plan's blocks are too large")
    for width in (dim, value_dim):
        require(width * query.element_size() % 16 == 0, f"rows of {width} are not 16-byte aligned")
    if out is None:
        out = query.new_empty(rows, query_heads, value_dim)
    require(out.is_contiguous() and out.dtype == query.dtype, "the output must be like the queries")
    if not len(plan.blocks):
        return out
    width = triton.next_power_of_2(max(16, dim))
    value_width = triton.next_power_of_2(max(16, value_dim))
    _blocks[(heads, len(plan.blocks))](
        query,
        TensorDescriptor.from_tensor(dense.keys.view(-1, dim), [launch.tile, width]),
        TensorDescriptor.from_tensor(dense.values.view(-1, value_dim), [launch.tile, value_width]),
        plan.blocks,
        plan.spans,
        score.sinks,
        out,
        keys,
        score.scale * LOG2E,
        1.0 if score.softcap is None else score.softcap,
        FIELDS=len(BLOCK),
        HEADS=query_heads,
        GROUP=group,
        BLOCK=launch.block,
        TILE=launch.tile,
        DIM=dim,
        WIDTH=width,
        VALUE_DIM=value_dim,
        VALUE_WIDTH=value_width,
        CAPPED=score.softcap is not None,
        SUNK=score.sinks is not None,
        WINDOWED=plan.windowed,
        SPECIALISED=launch.specialised,
        PRECISION=precision(query.dtype),
        num_warps=launch.warps,
        num_stages=launch.stages,
    )
    return out


@triton.jit
def _tile(
    x, highest, total, mixed, start, low, high, base, keys, values, scale, softcap,
    TILE: tl.constexpr, CAPPED: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of keys into a block's running maximum, sum and mixture of values."""
    k = keys.load([base + start, 0])
    scores = tl.dot(x, k.T, input_precision=PRECISION)
    # Scores times ``unit`` are in units of log 2; multiplied late, they cost no instruction.
    unit = scale
    if CAPPED:
        scores = 1.0 - 2.0 / (tl.exp2(scores * (2.0 * scale / softcap)) + 1.0)
        unit = softcap * 1.4426950408889634
    if MASKED:
        at = start + tl.arange(0, TILE)
        seen = (at[None, :] >= low[:, None]) & (at[None, :] < high[:, None])
        scores = tl.where(seen, scores, float("-inf"))
    peak = tl.maximum(highest, tl.max(scores, 1) * unit)
    ground = tl.where(peak == float("-inf"), 0.0, peak) if MASKED else peak
    weights = tl.exp2(scores * unit - ground[:, None])
    shrink = tl.exp2(highest - ground)
    total = total * shrink + tl.sum(weights, 1)
    mixed = mixed * shrink[:, None]
    v = values.load([base + start, 0])
    if MASKED:
        # Rows past the list belong to another one, or to nobody: they may hold anything.
        v = tl.where((start + tl.arange(0, TILE) < tl.max(high, 0))[:, None], v, 0.0)
    mixed = tl.dot(weights.to(x.dtype), v.to(x.dtype), mixed, input_precision=PRECISION)
    return peak, total, mixed


@triton.jit
def _blocks(
    query, keys, values, blocks, spans, sinks, out, key_count, scale, softcap,
    FIELDS: tl.constexpr, HEADS: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
    TILE: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, VALUE_DIM: tl.constexpr,
    VALUE_WIDTH: tl.constexpr, CAPPED: tl.constexpr, SUNK: tl.constexpr, WINDOWED: tl.constexpr,
    SPECIALISED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    head, entry = tl.program_id(0), blocks + tl.program_id(1) * FIELDS
    first, rows = tl.load(entry), tl.load(entry + 1)
    base = head * key_count + tl.load(entry + 2)
    lines = tl.arange(0, BLOCK)
    row = first + lines // GROUP
    inside = lines < rows * GROUP
    low = tl.load(spans + 2 * row, mask=inside, other=0)
    high = tl.load(spans + 2 * row + 1, mask=inside, other=0)
    line = row.to(tl.int64) * HEADS + head * GROUP + lines % GROUP
    dims = tl.arange(0, WIDTH)
    known = inside[:, None] & (dims < DIM)[None, :]
    x = tl.load(query + line[:, None] * DIM + dims[None, :], mask=known, other=0.0)

    # All rows of the block see the keys [begin, whole); some see those in [whole, end).
    end = tl.max(high, 0)
    if WINDOWED:
        begin = tl.min(tl.where(inside, low, 2147483647), 0)
        whole = begin
    else:
        begin = 0
        whole = tl.min(tl.where(inside, high, 2147483647), 0) // TILE * TILE
    highest = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    mixed = tl.zeros([BLOCK, VALUE_WIDTH], tl.float32)
    for start in tl.range(begin, whole, TILE, warp_specialize=SPECIALISED):
        highest, total, mixed = _tile(
            x, highest, total, mixed, start, low, high, base, keys, values, scale, softcap,
            TILE, CAPPED, False, PRECISION,
        )  # fmt: skip
    for start in tl.range(whole, end, TILE):
        highest, total, mixed = _tile(
            x, highest, total, mixed, start, low, high, base, keys, values, scale, softcap,
            TILE, CAPPED, True, PRECISION,
        )  # fmt: skip
    if SUNK:
        sink = tl.load(sinks + head * GROUP + lines % GROUP).to(tl.float32) * 1.4426950408889634
        peak = tl.maximum(highest, sink)
        mixed *= tl.exp2(highest - peak)[:, None]
        total = total * tl.exp2(highest - peak) + tl.exp2(sink - peak)
    mixed = mixed / tl.where(total > 0, total, 1.0)[:, None]
    value_dims = tl.arange(0, VALUE_WIDTH)
    there = inside[:, None] & (value_dims < VALUE_DIM)[None, :]
    at = line[:, None] * VALUE_DIM + value_dims[None, :]
    tl.store(out + at, mixed.to(out.dtype.element_ty), mask=there)
