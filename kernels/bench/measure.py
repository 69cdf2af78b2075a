"""How things are timed, and the ceilings of the card they are held to.

Times are device times: the calls are captured in a graph, so that launching costs nothing, and the
median of many replays is taken. Where the data would fit the cache, several sets of it take turns.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

# Data that is read between two readings of the same bytes, to be sure they left the cache.
COLD_BYTES = 2**28
REPLAYS = 15
# Replays go on for this long before any counts, so that clocks have risen.
WARM_SECONDS = 0.05


def seconds(calls: Sequence[Callable[[], Any]], replays: int = REPLAYS) -> float:
    """The time of one call: median over ``replays`` of a graph that makes each call once."""
    for call in calls[:1]:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    begun = time.perf_counter()
    while time.perf_counter() - begun < WARM_SECONDS:
        _timed(graph.replay)
    return statistics.median(_timed(graph.replay) for _ in range(replays)) / len(calls)


def sets_for(size: int) -> int:
    """How many sets of ``size`` bytes must take turns so that none is read from the cache."""
    return max(1, min(64, -(-COLD_BYTES // max(1, size))))


def ceilings() -> dict[str, float]:
    """Bytes per second of a large copy (read and written), FLOP per second of a bf16 product."""
    return {"copy_bytes_per_s": _copy_rate(), "matmul_flop_per_s": _product_rate()}


def _copy_rate() -> float:
    source, target = (torch.randn(2**30, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    # By a kernel: in a graph a plain copy goes to the copy engine, which is slower.
    return 2 * source.nbytes / seconds([lambda: torch.neg(source, out=target)])


def _product_rate() -> float:
    left, right, out = (
        torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(3)
    )
    return 2 * 8192**3 / seconds([lambda: torch.matmul(left, right, out=out)])


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    import triton

    return {
        "card": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": str(torch.version.cuda),
    }


def _timed(call: Callable[[], Any]) -> float:
    # Untyped functions of torch.
    start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3
