"""``python -m akv_rsi.kernels.bench``: the figures of all kernels as JSON."""

from __future__ import annotations

import json

from .run import bench_kernels

print(json.dumps(bench_kernels(), indent=2))
