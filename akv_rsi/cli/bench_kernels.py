"""`akv-rsi bench kernels` and `akv-rsi bench serving`: figures of one GPU."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.pretty import Pretty

from akv_rsi.cli.output import print_json
from akv_rsi.errors import ConfigError


def bench_kernels(*, json: bool = False) -> None:
    """Check and time the kernels on a GPU, against torch and against other ways.

    Bandwidth and operations a second, as shares of the copy and product ceilings of the same run.

    Args:
        json: Print the result as JSON.
    """
    _require_gpu()
    from akv_rsi.kernels.bench.run import bench_kernels as bench

    _show(bench(say=Console(stderr=True).print), json)


def bench_serving(*, seed: int = 0, json: bool = False) -> None:
    """Time an 8B-shaped model with random weights on a GPU: decoding, edits, a trajectory.

    Args:
        seed: Of weights and tokens.
        json: Print the result as JSON.
    """
    _require_gpu()
    from akv_rsi.engine.bench.serving import bench_serving as bench

    _show(bench(seed=seed, say=Console(stderr=True).print), json)


def _require_gpu() -> None:
    import torch

    if not torch.cuda.is_available():
        raise ConfigError("this benchmark needs a CUDA device; `akv-rsi bench engine` does not")


def _show(found: dict[str, Any], json: bool) -> None:
    if json:
        print_json(found)
    else:
        Console().print(Pretty(found))
