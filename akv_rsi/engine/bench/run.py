"""The engine's benchmark: `akv-rsi bench engine`, or `bench_engine` on a bare machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from akv_rsi.config import EngineConfig
from akv_rsi.engine.bench.edits import CONTEXT, after_edit
from akv_rsi.engine.bench.generation import decode, prefill
from akv_rsi.engine.bench.metadata import metadata
from akv_rsi.engine.bench.shape import smollm2_pair
from akv_rsi.engine.bench.steps import where_the_time_goes

Dtype = Literal["float32", "bfloat16"]
DTYPES: tuple[Dtype, ...] = ("float32", "bfloat16")
THREADS = (1, 2)
BATCHES = (1, 8)
STEP_CONTEXT = 512


def bench_engine(
    dtypes: Sequence[Dtype] = DTYPES,
    threads: Sequence[int] = THREADS,
    rounds: int = 5,
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """All figures: ratios are medians over ``rounds`` in which the arms took turns.

    A ratio against transformers above 1 means that the engine is faster. ``say`` is told what is
    measured next.
    """
    before = torch.get_num_threads()
    results = []
    for dtype in dtypes:
        pages = 2 * CONTEXT // 16 + 1024
        config = EngineConfig(dtype=dtype, pages=pages, self_test=False, max_batch=max(BATCHES))
        pair = smollm2_pair(config, seed)
        for count in threads:
            torch.set_num_threads(count)
            say(f"{dtype}, {count} threads")
            row: dict[str, Any] = {"dtype": dtype, "threads": count}
            for batch in BATCHES:
                row[f"decode_{batch}"] = decode(pair, batch, seed)
            row["prefill"] = prefill(pair, rounds, seed)
            row["edits"] = after_edit(pair.engine, rounds, seed)
            row["steps"] = {}
            for batch in BATCHES:
                pair.engine.reset()
                row["steps"][batch] = where_the_time_goes(pair.engine, STEP_CONTEXT, batch, seed)
            results.append(row)
    torch.set_num_threads(before)
    return {"shape": "SmolLM2-135M", "seed": seed, "runs": results, "metadata": metadata(seed)}
