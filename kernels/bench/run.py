"""The kernels' benchmark as a whole."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import torch

from . import attention, copies
from .measure import ceilings, machine


def bench_kernels(say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """All figures, with shares of the copy and product ceilings measured in the same run.

    ``say`` is told what is measured next. Needs a CUDA device.
    """
    say("ceilings")
    limits = ceilings()
    say("accuracy")
    found: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "ceilings": limits,
        "accuracy": copies.accuracy(),
        "decode": [],
    }
    for sequences, retained in attention.DECODES:
        say(f"decode {sequences} x {retained}")
        row = attention.decode(sequences, retained)
        row["share_of_copy"] = row["bytes_per_s"] / limits["copy_bytes_per_s"]
        found["decode"].append(row)
        torch.cuda.empty_cache()
    say("runs")
    found["runs"] = attention.run_sweep()
    say("segments")
    found["segments"] = attention.segments()
    say("copies")
    found["copies"] = copies.copies()
    for name in ("page_copy", "repos_copy"):
        rate = found["copies"][f"{name}_bytes_per_s"]
        found["copies"][f"{name}_share_of_copy"] = rate / limits["copy_bytes_per_s"]
    found["repos"] = copies.repos_of_a_context()
    say("prefill")
    found["prefill"] = attention.prefill()
    rate = found["prefill"]["flop_per_s"]
    found["prefill"]["share_of_matmul"] = rate / limits["matmul_flop_per_s"]
    return found
