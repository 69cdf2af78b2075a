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


def turn(heads: Tensor, cos: Tensor, sin: Tensor, dim: int) -> Tensor:
    """Turned heads ``[rows, heads, dim]`` of ``heads`` ``[rows, at least heads x dim]``.

    Dimension ``i`` turns with ``i + dim / 2``, by the angles ``cos`` and ``sin`` ``[rows, dim]``;
    ``heads`` has contiguous rows of any stride, so it may be a part of a wider product.
    """
    require(heads.ndim == 2 and heads.stride(1) == 1, "heads must be rows")
    require(heads.shape[1] % dim == 0 and dim % 2 == 0, f"no whole heads of {dim}")
    require(heads.dtype in FLOATS, f"heads of type {heads.dtype} are not supported")
    rows, count = len(heads), heads.shape[1] // dim
    for table in (cos, sin):
        require(table.shape == (rows, dim) and table.is_contiguous(), "angles must be [rows, dim]")
    out = heads.new_empty(rows, count, dim)
    if rows:
        _turn[(rows,)](
            heads,
            cos,
            sin,
            out,
            heads.stride(0),
            HEADS=count,
            COUNT=triton.next_power_of_2(count),
            HALF=dim // 2,
            WIDTH=triton.next_power_of_2(dim // 2),
        )
    return out


def put(store: Store, keys: Tensor, values: Tensor, slots: Tensor) -> None:
    """Writes ``keys`` and ``values`` ``[kv heads, rows, dim]`` to ``slots`` ``[rows]`` (int64).

    The caller has made sure that slots lie in the store: they are on the device.
    """
    check_store(store.keys, store.values, store.key_scales, store.value_scales)
    require(store.key_scales is None, "quantised rows are not written here")
    for rows, kept in ((keys, store.keys), (values, store.values)):
        require(rows.dtype == kept.dtype, f"rows of type {rows.dtype} into {kept.dtype}")
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
            *keys.stride()[:2],
            *values.stride()[:2],
            *store.keys.stride()[:2],
            *store.values.stride()[:2],
            HEADS=heads,
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
    heads, cos, sin, out, step,
    HEADS: tl.constexpr, COUNT: tl.constexpr, HALF: tl.constexpr, WIDTH: tl.constexpr,
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
    to = out + row * (HEADS * 2 * HALF) + at
    tl.store(to, (low * low_cos - high * low_sin).to(out.dtype.element_ty), mask=known)
    tl.store(to + HALF, (high * high_cos + low * high_sin).to(out.dtype.element_ty), mask=known)


@triton.jit
def _put(
    keys, values, slots, to_keys, to_values,
    key_plane, key_step, value_plane, value_step,
    to_key_plane, to_key_step, to_value_plane, to_value_step,
    HEADS: tl.constexpr, COUNT: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr,
    VALUE_DIM: tl.constexpr, VALUE_WIDTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row)
    head = tl.arange(0, COUNT)[:, None].to(tl.int64)
    dims, value_dims = tl.arange(0, WIDTH)[None, :], tl.arange(0, VALUE_WIDTH)[None, :]
    known = (head < HEADS) & (dims < DIM)
    k = tl.load(keys + head * key_plane + row * key_step + dims, mask=known)
    tl.store(to_keys + head * to_key_plane + slot * to_key_step + dims, k, mask=known)
    known = (head < HEADS) & (value_dims < VALUE_DIM)
    v = tl.load(values + head * value_plane + row * value_step + value_dims, mask=known)
    tl.store(to_values + head * to_value_plane + slot * to_value_step + value_dims, v, mask=known)
