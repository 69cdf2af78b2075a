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
from torch import Tensor

from ..checks import QUANTISED, check_query, check_store, require
from ..rotation import Turns
from .jit import add_up, attend_items
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
    attend_items[(heads, len(plan.items))](
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
    add_up[(heads, rows)](
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
