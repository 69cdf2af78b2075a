"""What Triton compiles of attention: items of work, and the adding up of their results."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


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
def attend_items(
    query, keys, values, key_scales, value_scales, slots, items, spans, partner, cos, sin,
    partial, stats,
    key_plane, key_step, value_plane, value_step, slot_count, scale, softcap,
    FIELDS: tl.constexpr, HEADS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr, TILE: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr,
    VALUE_DIM: tl.constexpr, VALUE_WIDTH: tl.constexpr, TURNED: tl.constexpr,
    SCALED: tl.constexpr, CAPPED: tl.constexpr, PRECISION: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """One item for one kv head: its running maximum, sum and mixture of values, unnormalised."""
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
def add_up(
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
