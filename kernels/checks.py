"""What is checked on the host before a launch: a kernel reads and writes where it is told.

Nothing here looks at device memory, so no check waits for the device: index tables are checked as
numpy arrays, before they are sent there.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .errors import KernelArgumentError

Ints = npt.NDArray[np.int64]

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
QUANTISED = (torch.int8, torch.float8_e4m3fn)
LARGEST_HEAD = 256


def require(fits: bool, message: str) -> None:
    """Raises `KernelArgumentError` with ``message`` unless ``fits``."""
    if not fits:
        raise KernelArgumentError(message)


def index_table(values: Ints, limit: int, name: str, device: torch.device) -> Tensor:
    """``values`` as an int32 tensor on the device; all of them lie in ``[0, limit)``."""
    require(limit < 2**31, f"{name} go up to {limit}, which 32 bits do not hold")
    if values.size:
        low, high = int(values.min()), int(values.max())
        require(low >= 0 and high < limit, f"{name} [{low}, {high}] lie outside [0, {limit})")
    return send(values.astype(np.int32), device)


def send(values: npt.NDArray[np.int32], device: torch.device) -> Tensor:
    """An array on the device; the copy does not wait for work that is queued there."""
    tensor = torch.from_numpy(np.ascontiguousarray(values))
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def check_store(
    keys: Tensor, values: Tensor, key_scales: Tensor | None, value_scales: Tensor | None
) -> None:
    """Keys ``[kv heads, slots, dim]`` and values alike; scales ``[kv heads, slots]`` if quantised.

    Rows are contiguous; heads and slots may lie in either order.
    """
    for name, tensor in (("keys", keys), ("values", values)):
        require(tensor.ndim == 3, f"{name} must be [kv heads, slots, dim], not {tensor.ndim}-d")
        require(tensor.stride(2) == 1, f"the rows of {name} must be contiguous")
        require(
            tensor.dtype in FLOATS + QUANTISED, f"{name} of type {tensor.dtype} are not supported"
        )
        require(
            1 <= tensor.shape[2] <= LARGEST_HEAD,
            f"{name} have {tensor.shape[2]} dimensions; up to {LARGEST_HEAD} fit",
        )
    require(keys.shape[:2] == values.shape[:2], "keys and values differ in heads or slots")
    require(keys.dtype == values.dtype, "keys and values differ in type")
    quantised = keys.dtype in QUANTISED
    for name, scales in (("key scales", key_scales), ("value scales", value_scales)):
        require(quantised == (scales is not None), f"{name} belong to quantised storage, only")
        if scales is not None:
            require(scales.shape == keys.shape[:2], f"{name} must be [kv heads, slots]")
            require(scales.dtype == torch.float32, f"{name} must be float32, not {scales.dtype}")
            require(scales.is_contiguous(), f"{name} must be contiguous")


def check_query(query: Tensor, keys: Tensor, rows: int) -> None:
    """Queries ``[rows, query heads, dim]`` that fit the stored keys."""
    require(query.ndim == 3, "queries must be [rows, query heads, dim]")
    require(query.is_contiguous(), "queries must be contiguous")
    require(query.dtype in FLOATS, f"queries of type {query.dtype} are not supported")
    require(len(query) == rows, f"{len(query)} rows of queries for a plan of {rows}")
    require(query.shape[2] == keys.shape[2], "queries and keys differ in dimensions")
    require(query.shape[1] % keys.shape[0] == 0, "query heads are no multiple of kv heads")
    require(
        keys.dtype in QUANTISED or keys.dtype == query.dtype,
        f"queries of type {query.dtype} on keys of type {keys.dtype}",
    )
    require(query.device == keys.device, f"queries on {query.device}, keys on {keys.device}")
