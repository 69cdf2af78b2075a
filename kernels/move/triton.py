"""Rows of keys and values from slot to slot: page copy, repos copy, and staging for prefill.

A page copy (defragmentation) moves rows as they are, a repos copy turns keys from where they were
born to where they are seen, staging gathers a key list into a dense, unquantised one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from ..attend.triton import Store, strides
from ..checks import QUANTISED, Ints, check_store, index_table, require
from ..rotation import Turns

# Rows a program moves, and its warps: see README.md for the measurement.
ROWS, WARPS = 8, 4


@dataclass(frozen=True, slots=True)
class Moves:
    """Rows ``source[i]`` go to ``target[i]`` (int32, on the device), turned by ``turn[i]``.

    ``limits`` are one more than the highest source, target and turn; ``overlap`` tells whether a
    row is both read and written, if both are of one store.
    """

    source: Tensor
    target: Tensor
    turn: Tensor | None
    limits: tuple[int, int, int]
    overlap: bool


def make_moves(
    source: Ints, target: Ints, turn: Ints | None = None, device: torch.device | str = "cpu"
) -> Moves:
    """Moves from slot to slot. Raises `KernelArgumentError` when a slot is written twice."""
    require(source.shape == target.shape, "sources and targets differ in number")
    require(len(np.unique(target)) == len(target), "a slot is written twice")
    return _moves(source, target, turn, bool(np.isin(target, source).any()), torch.device(device))


def make_gather(
    source: Ints, turn: Ints | None = None, device: torch.device | str = "cpu"
) -> Moves:
    """Moves from slots to rows 0, 1, 2, ... of another store."""
    return _moves(source, np.arange(len(source)), turn, True, torch.device(device))


def _moves(
    source: Ints, target: Ints, turn: Ints | None, overlap: bool, device: torch.device
) -> Moves:
    require(turn is None or turn.shape == source.shape, "there must be a turn for each row")
    arrays = (source, target, np.zeros(1, dtype=np.int64) if turn is None else turn)
    limits = tuple(1 + int(array.max(initial=-1)) for array in arrays)
    names = ("sources", "targets", "turns")
    tables = [
        index_table(array, limit, name, device)
        for array, limit, name in zip(arrays, limits, names, strict=True)
    ]
    turned = None if turn is None else tables[2]
    return Moves(tables[0], tables[1], turned, (limits[0], limits[1], limits[2]), overlap)


def move(source: Store, target: Store, moves: Moves, turns: Turns | None = None) -> None:
    """Copies rows from one store to another, or within one; keys are turned by ``turns``.

    A quantised source goes to a target of the same type, scales and all, or to a plain one, where
    scales are multiplied in. Raises `KernelArgumentError` before anything is launched.
    """
    _check_move(source, target, moves, turns)
    heads, _, dim = source.keys.shape
    value_dim, count = source.values.shape[2], len(moves.source)
    if not count:
        return
    quantised = source.keys.dtype in QUANTISED
    kept = quantised and target.keys.dtype in QUANTISED
    _move[(heads, triton.cdiv(count, ROWS))](
        source.keys,
        source.values,
        source.key_scales,
        source.value_scales,
        target.keys,
        target.values,
        target.key_scales,
        target.value_scales,
        moves.source,
        moves.target,
        moves.turn,
        None if turns is None else turns.partner,
        None if turns is None else turns.cos,
        None if turns is None else turns.sin,
        count,
        *strides(source),
        *strides(target),
        DIM=dim,
        WIDTH=triton.next_power_of_2(dim),
        VALUE_DIM=value_dim,
        VALUE_WIDTH=triton.next_power_of_2(value_dim),
        ROWS=ROWS,
        TURNED=turns is not None,
        HALVES=turns is not None and turns.halves,
        DEQUANTISED=quantised and not kept,
        SCALES=kept,
        num_warps=WARPS,
    )


def _check_move(source: Store, target: Store, moves: Moves, turns: Turns | None) -> None:
    for store in (source, target):
        check_store(store.keys, store.values, store.key_scales, store.value_scales)
        require(store.keys.device == moves.source.device, "stores and moves on different devices")
    for mine, other in ((source.keys, target.keys), (source.values, target.values)):
        require(
            (mine.shape[0], mine.shape[2]) == (other.shape[0], other.shape[2]),
            "stores differ in heads or dimensions",
        )
    require(moves.limits[0] <= source.keys.shape[1], "a row is read past the end of its store")
    require(moves.limits[1] <= target.keys.shape[1], "a row is written past the end of its store")
    same = source.keys.data_ptr() == target.keys.data_ptr()
    require(not (same and moves.overlap), "a row is both read and written")
    quantised = target.keys.dtype in QUANTISED
    fits = source.keys.dtype == target.keys.dtype
    require(fits or (source.keys.dtype in QUANTISED and not quantised), "types that do not convert")
    require((turns is None) == (moves.turn is None), "turns and angles belong together")
    if turns is not None:
        require(not quantised, "quantised keys cannot be turned in place")
        turns.check(source.keys.shape[2], source.keys.device)
        require(moves.limits[2] <= len(turns.cos), f"only {len(turns.cos)} turns are known")


@triton.jit
def _angles(table, turn, near, DIM: tl.constexpr):
    """Rows ``turn`` of ``table`` at columns ``near``: one row, if all are the same."""
    first, last = tl.min(turn, 0), tl.max(turn, 0)
    if first == last:
        angles = tl.load(table + first * DIM + near)[None, :] + tl.zeros_like(turn)[:, None]
    else:
        angles = tl.load(table + turn[:, None] * DIM + near[None, :])
    return angles


@triton.jit
def _move(
    keys, values, key_scales, value_scales, to_keys, to_values, to_key_scales, to_value_scales,
    source, target, turn, partner, cos, sin, count,
    key_plane, key_step, value_plane, value_step, slot_count,
    to_key_plane, to_key_step, to_value_plane, to_value_step, to_slot_count,
    DIM: tl.constexpr, WIDTH: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    ROWS: tl.constexpr, TURNED: tl.constexpr, HALVES: tl.constexpr, DEQUANTISED: tl.constexpr,
    SCALES: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    there = at < count
    start = tl.load(source + at, mask=there, other=0).to(tl.int64)
    end = tl.load(target + at, mask=there, other=0).to(tl.int64)
    dims, value_dims = tl.arange(0, WIDTH), tl.arange(0, VALUE_WIDTH)
    known = there[:, None] & (dims < DIM)[None, :]
    value_known = there[:, None] & (value_dims < VALUE_DIM)[None, :]
    lines = keys + head * key_plane + start[:, None] * key_step
    to_lines = to_keys + head * to_key_plane + end[:, None] * to_key_step
    scale, end_scale = start + head * slot_count, end + head * to_slot_count
    factor = tl.full([ROWS, 1], 1.0, tl.float32)
    if DEQUANTISED:
        factor = tl.load(key_scales + scale, mask=there)[:, None]
    if HALVES:
        # Rows behind the last one turn like it: nobody reads what becomes of them.
        row = tl.load(turn + tl.minimum(at, count - 1))
        near = tl.arange(0, WIDTH // 2)
        whole = there[:, None] & (near < DIM)[None, :]
        low = tl.load(lines + near[None, :], mask=whole).to(tl.float32) * factor
        high = tl.load(lines + (near + DIM // 2)[None, :], mask=whole).to(tl.float32) * factor
        turned = low * _angles(cos, row, near, DIM) + high * _angles(sin, row, near, DIM)
        tl.store(to_lines + near[None, :], turned.to(to_keys.dtype.element_ty), mask=whole)
        near += DIM // 2
        turned = high * _angles(cos, row, near, DIM) + low * _angles(sin, row, near, DIM)
        tl.store(to_lines + near[None, :], turned.to(to_keys.dtype.element_ty), mask=whole)
    else:
        k = tl.load(lines + dims[None, :], mask=known)
        if TURNED:
            twin = tl.load(partner + dims, mask=dims < DIM, other=0)
            pair = tl.load(lines + twin[None, :], mask=known)
            row = tl.load(turn + at, mask=there, other=0)[:, None] * DIM + dims[None, :]
            c, s = tl.load(cos + row, mask=known), tl.load(sin + row, mask=known)
            k = k.to(tl.float32) * c + pair.to(tl.float32) * s
        if DEQUANTISED:
            k = k.to(tl.float32) * factor
        tl.store(to_lines + dims[None, :], k.to(to_keys.dtype.element_ty), mask=known)
    value_lines = values + head * value_plane + start[:, None] * value_step
    v = tl.load(value_lines + value_dims[None, :], mask=value_known)
    if DEQUANTISED:
        v = v.to(tl.float32) * tl.load(value_scales + scale, mask=there)[:, None]
    if SCALES:
        tl.store(to_key_scales + end_scale, tl.load(key_scales + scale, mask=there), mask=there)
        tl.store(to_value_scales + end_scale, tl.load(value_scales + scale, mask=there), mask=there)
    to_lines = to_values + head * to_value_plane + end[:, None] * to_value_step
    tl.store(to_lines + value_dims[None, :], v.to(to_values.dtype.element_ty), mask=value_known)
