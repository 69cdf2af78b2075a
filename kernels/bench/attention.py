"""Decoding and prefill against torch (SDPA by flash and cuDNN, FlexAttention) and other ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

from ..attend.plan import KeyList, Plan, Run, balanced, make_plan
from ..attend.triton import Store, attend, new_workspace
from ..move.triton import make_gather, move
from ..prefill.plan import make_staged_plan
from ..prefill.triton import attend_staged, best_launch, block_rows, stage
from .cases import KV_HEADS, QUERY_HEADS, SCORE, Case, make_case
from .key_side import keys_turned
from .measure import seconds, sets_for

STOCK = {"sdpa_flash": SDPBackend.FLASH_ATTENTION, "sdpa_cudnn": SDPBackend.CUDNN_ATTENTION}
# Sequences, retained keys.
DECODES = ((32, 32768), (8, 32768), (1, 131072), (1, 32768), (1, 4096))
# Where FlexAttention is measured too: compiling it takes longest.
FLEX = (8, 32768)
RUNS = (1, 8, 64, 256, 1024, 4096)
NEW, RETAINED = 4096, 32768
Call = Callable[[], Any]


def decode(sequences: int, retained: int) -> dict[str, Any]:
    """One token for each sequence: 8 runs and 10% holes, against none, and against SDPA."""
    sets = min(16, sets_for(sequences * retained * 4096))
    moved = [make_case(sequences, retained, runs=8, holes=0.1, seed=seed) for seed in range(sets)]
    size = moved[0].read_bytes
    ours = seconds([in_place(case) for case in moved])
    stock = {name: _sdpa_decode(name, moved[0]) for name in STOCK}
    turning = seconds([keys_turned(case, plan_of(case)) for case in moved])
    if (sequences, retained) == FLEX:
        stock["flex_attention"] = _flex_decode(moved[0])
    del moved
    still = [make_case(sequences, retained, seed=seed) for seed in range(sets)]
    plain = seconds([in_place(case, turned=False) for case in still])
    return {
        "sequences": sequences,
        "retained": retained,
        "us": ours * 1e6,
        "bytes_per_s": size / ours,
        "time_over_no_deltas_no_holes": ours / plain,
        **{f"speed_over_{name}": time / ours for name, time in stock.items()},
        "speed_over_turning_keys": turning / ours,
    }


def run_sweep(sequences: int = 8, retained: int = 32768) -> list[dict[str, float]]:
    """The same keys in more and more runs, against dense pages made of them (and the making)."""
    rows = []
    for runs in RUNS:
        case = make_case(sequences, retained, runs=runs, holes=0.1)
        dense, lists, make = _materialised(case)
        rows.append(
            {
                "runs": runs,
                "in_place_us": seconds([in_place(case)]) * 1e6,
                "keys_turned_each_step_us": seconds([make, _attending(case, dense, lists)]) * 2e6,
                "materialised_us": seconds([_attending(case, dense, lists)]) * 1e6,
                "materialise_us": seconds([make]) * 1e6,
            }
        )
        del case, dense, make
    return rows


def prefill() -> dict[str, Any]:
    """4k new rows over 28k retained keys."""
    moved = make_case(1, RETAINED, rows=NEW, runs=8, holes=0.1)
    still = make_case(1, RETAINED, rows=NEW)
    ours, plain = seconds([staged(moved)]), seconds([staged(still, turned=False)])
    keys, values = (rows.repeat_interleave(QUERY_HEADS // KV_HEADS, 1) for rows in moved.dense())
    query = moved.query.view(1, NEW, QUERY_HEADS, -1).transpose(1, 2).contiguous()
    mask = causal_lower_right(NEW, RETAINED)
    sdpa = partial(F.scaled_dot_product_attention, query, keys, values, attn_mask=mask)
    stock = {name: _stock(name, [sdpa]) for name in STOCK}
    return {
        "new": NEW,
        "retained": RETAINED,
        "ms": ours * 1e3,
        "flop_per_s": moved.flop / ours,
        "flop_per_s_attention_alone": moved.flop / seconds([staged(moved, alone=True)]),
        "speed_over_no_deltas_no_holes": plain / ours,
        "speed_over_read_in_place": seconds([in_place(moved, rows=16)]) / ours,
        **{f"speed_over_{name}": time / ours for name, time in stock.items()},
        "speed_over_flex_attention": _flex(query, keys, values) / ours,
    }


def segments(count: int = 64, rows: int = 16, retained: int = 4096) -> dict[str, Any]:
    """Short segments of many sequences: all in one launch, against a launch for each."""
    case = make_case(count, retained, rows=rows, runs=4, holes=0.1)
    together = seconds([in_place(case, rows=16)])
    alone = []
    for number, listed in enumerate(case.lists):
        task = case.tasks[number]._replace(start=0, list=0)
        query = case.query[number * rows : (number + 1) * rows].contiguous()
        one = Case(query, case.store, [listed], [task], case.query_turns, case.key_turns)
        alone.append(in_place(one, rows=16))
    return {
        "segments": count,
        "rows": rows,
        "retained": retained,
        "us": together * 1e6,
        "speed_over_a_launch_each": seconds(alone) * count / together,
    }


def in_place(case: Case, rows: int = 1, turned: bool = True) -> Call:
    """Attention that reads the keys where they lie."""
    return _attending(case, case.store, case.lists, rows, turned)


def staged(case: Case, turned: bool = True, alone: bool = False) -> Call:
    """Attention of many rows over staged keys, staging included unless ``alone``."""
    launch = best_launch(case.query, case.store)
    group = QUERY_HEADS // KV_HEADS
    plan = make_staged_plan(case.lists, case.tasks, block_rows(group, launch), "cuda")
    turns, out = case.key_turns if turned else None, torch.empty_like(case.query)
    ready = stage(case.store, plan, turns, case.query) if alone else None

    def call() -> Tensor:
        dense = stage(case.store, plan, turns, case.query) if ready is None else ready
        return attend_staged(case.query, dense, plan, SCORE, out)

    return call


def _attending(
    case: Case, store: Store, lists: Sequence[KeyList], rows: int = 1, turned: bool = True
) -> Call:
    plan = plan_of(case, store, lists, rows)
    out, room = torch.empty_like(case.query), new_workspace(case.query, store, plan)
    turns = case.query_turns if turned and store is case.store else None
    return lambda: attend(case.query, store, plan, SCORE, turns, out, workspace=room)


def plan_of(
    case: Case,
    store: Store | None = None,
    lists: Sequence[KeyList] | None = None,
    rows: int = 1,
) -> Plan:
    """How the engine would cut a case; ``store`` and ``lists`` may be copies of its own."""
    store, lists = store or case.store, lists or case.lists
    cores = torch.cuda.get_device_properties(0).multi_processor_count
    work = sum(len(lists[task.list].slots) * -(-len(task.spans) // rows) for task in case.tasks)
    sizes = balanced(work, KV_HEADS, cores, rows)
    return make_plan(lists, case.tasks, sizes, store.keys.shape[1], "cuda")


def _materialised(case: Case) -> tuple[Store, list[KeyList], Call]:
    """Dense pages of a case's lists with turned keys, and what makes them."""
    sizes = [len(listed.slots) for listed in case.lists]
    edges = np.cumsum([0, *sizes])
    source = np.concatenate([listed.slots for listed in case.lists])
    turn = np.concatenate(
        [np.full(run.end - run.begin, run.turn) for listed in case.lists for run in listed.runs]
    )
    moves = make_gather(source, turn, "cuda")
    shape = (KV_HEADS, len(source), case.query.shape[2])
    dense = Store(case.query.new_empty(shape), case.query.new_empty(shape))
    lists = [
        KeyList(np.arange(start, start + size), [Run(0, size, 0)])
        for start, size in zip(edges[:-1].tolist(), sizes, strict=True)
    ]
    return dense, lists, lambda: move(case.store, dense, moves, case.key_turns)


def _sdpa_decode(name: str, case: Case) -> float:
    keys, values = case.dense()
    query = case.query.view(len(keys), QUERY_HEADS, 1, -1)
    sets = [(keys.clone(), values.clone()) for _ in range(sets_for(case.read_bytes))]
    sdpa = F.scaled_dot_product_attention
    return _stock(name, [partial(sdpa, query, *pair, enable_gqa=True) for pair in sets])


def _stock(name: str, calls: Sequence[Call]) -> float:
    with sdpa_kernel(STOCK[name]):
        return seconds(calls)


def _flex_decode(case: Case) -> float:
    from torch.nn.attention.flex_attention import flex_attention

    keys, values = case.dense()
    query = case.query.view(len(keys), QUERY_HEADS, 1, -1)
    sets = [(keys.clone(), values.clone()) for _ in range(sets_for(case.read_bytes))]
    compiled = torch.compile(flex_attention, dynamic=False)
    return seconds([partial(compiled, query, *pair, enable_gqa=True) for pair in sets])


def _flex(query: Tensor, keys: Tensor, values: Tensor) -> float:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    offset = keys.shape[2] - query.shape[2]

    def causal(_batch: Tensor, _head: Tensor, row: Tensor, column: Tensor) -> Tensor:
        return row + offset >= column

    mask = create_block_mask(causal, None, None, query.shape[2], keys.shape[2], device="cuda")
    compiled = torch.compile(flex_attention, dynamic=False)
    return seconds([lambda: compiled(query, keys, values, block_mask=mask)])
