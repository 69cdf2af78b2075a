"""Normalisation, rotation, gating and the writing of KV: a launch each, where torch makes many.

A decode step has few rows, and what its layers do between products takes longer to launch than to
do. Each kernel reads and writes its rows once; sums are in single precision, and results round
where transformers rounds.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..attend.triton import Store
from ..checks import FLOATS, check_store, require

# Columns of a gated row that a program takes.
COLUMNS = 1024


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm of ``x`` ``[rows, dim]`` with ``weight`` ``[dim]``."""
    _check_rows(x)
    rows, dim = x.shape
    require(weight.shape == (dim,) and weight.dtype == x.dtype, "a weight for each dimension")
    out = torch.empty_like(x)
    if rows:
        width = triton.next_power_of_2(dim)
        _norm[(rows,)](x, weight, out, eps, DIM=dim, WIDTH=width, num_warps=8)
    return out


def gate(gates: Tensor) -> Tensor:
    """SwiGLU ``[rows, dim]`` of ``gates`` ``[rows, 2 x dim]``: the first half opens the second."""
    _check_rows(gates)
    rows, dim = len(gates), gates.shape[1] // 2
    require(gates.shape[1] == 2 * dim, "gates come in pairs")
    out = gates.new_empty(rows, dim)
    if rows:
        _gate[(rows, triton.cdiv(dim, COLUMNS))](gates, out, DIM=dim, COLUMNS=COLUMNS)
    return out


def turn(heads: Tensor, cos: Tensor, sin: Tensor, dim: int, queries: int) -> tuple[Tensor, Tensor]:
    """The first ``queries`` of ``heads`` turned, and the others: ``[rows, heads, dim]`` each.

    ``heads`` ``[rows, heads x dim]`` has contiguous rows of any stride, so it may be a part of a
    wider product. Dimension ``i`` turns with ``i + dim / 2``, by the angles ``cos`` and ``sin``
    ``[rows, dim]``.
    """
    require(heads.ndim == 2 and heads.stride(1) == 1, "heads must be rows")
    require(heads.shape[1] % dim == 0 and dim % 2 == 0, f"no whole heads of {dim}")
    require(heads.dtype in FLOATS, f"heads of type {heads.dtype} are not supported")
    rows, count = len(heads), heads.shape[1] // dim
    require(0 <= queries <= count, f"{queries} of {count} heads")
    for table in (cos, sin):
        require(table.shape == (rows, dim) and table.is_contiguous(), "angles must be [rows, dim]")
    first, second = heads.new_empty(rows, queries, dim), heads.new_empty(rows, count - queries, dim)
    if rows:
        _turn[(rows,)](
            heads,
            cos,
            sin,
            first,
            second,
            heads.stride(0),
            HEADS=count,
            COUNT=triton.next_power_of_2(count),
            QUERIES=queries,
            HALF=dim // 2,
            WIDTH=triton.next_power_of_2(dim // 2),
        )
    return first, second


def put(store: Store, keys: Tensor, values: Tensor, slots: Tensor) -> None:
    """Writes ``keys`` and ``values`` ``[kv heads, rows, dim]`` to ``slots`` ``[rows]`` (int64).

    An int8 store gets codes, and the largest magnitude of a row over 127 as its scale. The caller
    has made sure that slots lie in the store: they are on the device.
    """
    check_store(store.keys, store.values, store.key_scales, store.value_scales)
    rounded = store.keys.dtype == torch.int8
    for rows, kept in ((keys, store.keys), (values, store.values)):
        fits = rows.dtype in FLOATS if rounded else rows.dtype == kept.dtype
        require(fits, f"rows of type {rows.dtype} into {kept.dtype}")
        require(rows.shape == (kept.shape[0], len(slots), kept.shape[2]), "rows do not fit")
        require(rows.stride(2) == 1, "rows must be contiguous")
    require(slots.dtype == torch.int64 and slots.is_contiguous(), "slots must be int64")
    heads, count, dim = keys.shape
    if count:
        _put[(count,)](
            keys,
            values,
            slots,
            store.keys,
            store.values,
            store.key_scales,
            store.value_scales,
            *keys.stride()[:2],
            *values.stride()[:2],
            *store.keys.stride()[:2],
            *store.values.stride()[:2],
            store.keys.shape[1],
            HEADS=heads,
            ROUNDED=rounded,
            COUNT=triton.next_power_of_2(heads),
            DIM=dim,
            WIDTH=triton.next_power_of_2(dim),
            VALUE_DIM=values.shape[2],
            VALUE_WIDTH=triton.next_power_of_2(values.shape[2]),
        )


def _check_rows(x: Tensor) -> None:
    require(x.ndim == 2 and x.is_contiguous(), "rows must be a contiguous [rows, dim]")
    require(x.dtype in FLOATS, f"rows of type {x.dtype} are not supported")


@triton.jit
def _norm(x, weight, out, eps, DIM: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * DIM
    dims = tl.arange(0, WIDTH)
    known = dims < DIM
    values = tl.load(x + row + dims, mask=known, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, 0) / DIM + eps)
    scaled = (values * scale).to(out.dtype.element_ty).to(tl.float32)
    factor = tl.load(weight + dims, mask=known, other=0.0).to(tl.float32)
    tl.store(out + row + dims, (scaled * factor).to(out.dtype.element_ty), mask=known)


@triton.jit
def _gate(gates, out, DIM: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    known = column < DIM
    opens = tl.load(gates + row * 2 * DIM + column, mask=known, other=0.0).to(tl.float32)
    up = tl.load(gates + row * 2 * DIM + DIM + column, mask=known, other=0.0).to(tl.float32)
    opened = opens / (1.0 + tl.exp(-opens))
    product = opened.to(out.dtype.element_ty).to(tl.float32) * up
    tl.store(out + row * DIM + column, product.to(out.dtype.element_ty), mask=known)


@triton.jit
def _turn(
    heads, cos, sin, first, second, step,
    HEADS: tl.constexpr, COUNT: tl.constexpr, QUERIES: tl.constexpr, HALF: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head, dims = tl.arange(0, COUNT)[:, None], tl.arange(0, WIDTH)[None, :]
    known = (head < HEADS) & (dims < HALF)
    at = head * (2 * HALF) + dims
    low = tl.load(heads + row * step + at, mask=known, other=0.0).to(tl.float32)
    high = tl.load(heads + row * step + at + HALF, mask=known, other=0.0).to(tl.float32)
    angle = row * (2 * HALF) + dims
    there = dims < HALF
    low_cos = tl.load(cos + angle, mask=there, other=0.0).to(tl.float32)
    low_sin = tl.load(sin + angle, mask=there, other=0.0).to(tl.float32)
    high_cos = tl.load(cos + angle + HALF, mask=there, other=0.0).to(tl.float32)
    high_sin = tl.load(sin + angle + HALF, mask=there, other=0.0).to(tl.float32)
    kind = first.dtype.element_ty
    turned_low = (low * low_cos - high * low_sin).to(kind)
    turned_high = (high * high_cos + low * high_sin).to(kind)
    mine, to = known & (head < QUERIES), first + row * (QUERIES * 2 * HALF) + at
    tl.store(to, turned_low, mask=mine)
    tl.store(to + HALF, turned_high, mask=mine)
    mine = known & (head >= QUERIES)
    to = second + row * ((HEADS - QUERIES) * 2 * HALF) + at - QUERIES * 2 * HALF
    tl.store(to, turned_low, mask=mine)
    tl.store(to + HALF, turned_high, mask=mine)


@triton.jit
def _row(
    rows, scales, slot, plane, slot_count,
    HEADS: tl.constexpr, COUNT: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr,
    ROUNDED: tl.constexpr,
):  # fmt: skip
    """All heads of one row as they are stored: codes, if rounded, whose scales are written here."""
    head, dims = tl.arange(0, COUNT), tl.arange(0, WIDTH)
    known = (head < HEADS)[:, None] & (dims < DIM)[None, :]
    x = tl.load(rows + head[:, None].to(tl.int64) * plane + dims[None, :], mask=known, other=0.0)
    if ROUNDED:
        x = x.to(tl.float32)
        scale = tl.max(tl.abs(x), 1) / 127.0
        # A row that is no numbers gets a scale that is none.
        scale = tl.where(tl.max((x != x).to(tl.int32), 1) > 0, float("nan"), scale)
        tl.store(scales + head.to(tl.int64) * slot_count + slot, scale, mask=head < HEADS)
        # Adding and taking away 1.5 x 2^23 rounds to the nearest, halves to the even.
        x = x / tl.maximum(scale, 1.1754944e-38)[:, None] + 12582912.0 - 12582912.0
        x = tl.minimum(tl.maximum(tl.where(x == x, x, 0.0), -127.0), 127.0)
    return x, known


@triton.jit
def _put(
    keys, values, slots, to_keys, to_values, key_scales, value_scales,
    key_plane, key_step, value_plane, value_step,
    to_key_plane, to_key_step, to_value_plane, to_value_step, slot_count,
    HEADS: tl.constexpr, COUNT: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr,
    VALUE_DIM: tl.constexpr, VALUE_WIDTH: tl.constexpr, ROUNDED: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row)
    head = tl.arange(0, COUNT)[:, None].to(tl.int64)
    k, known = _row(
        keys + row * key_step, key_scales, slot, key_plane, slot_count,
        HEADS, COUNT, DIM, WIDTH, ROUNDED,
    )  # fmt: skip
    to = to_keys + head * to_key_plane + slot * to_key_step + tl.arange(0, WIDTH)[None, :]
    tl.store(to, k.to(to_keys.dtype.element_ty), mask=known)
    v, known = _row(
        values + row * value_step, value_scales, slot, value_plane, slot_count,
        HEADS, COUNT, VALUE_DIM, VALUE_WIDTH, ROUNDED,
    )  # fmt: skip
    to = to_values + head * to_value_plane + slot * to_value_step
    tl.store(to + tl.arange(0, VALUE_WIDTH)[None, :], v.to(to_values.dtype.element_ty), mask=known)
