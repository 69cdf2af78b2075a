"""What the kernels of a layer must equal, in plain torch; rounded where transformers rounds."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def normed_rows(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm of ``x`` ``[rows, dim]``."""
    single = x.float()
    scaled = single * torch.rsqrt(single.pow(2).mean(-1, keepdim=True) + eps)
    return weight * scaled.to(x.dtype)


def gated_rows(gates: Tensor) -> Tensor:
    """SwiGLU of ``gates`` ``[rows, 2 x dim]``: the first half opens the second."""
    gate, up = gates.chunk(2, -1)
    return F.silu(gate) * up


def turned_heads(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """``heads`` ``[rows, heads, dim]``, ``i`` with ``i + dim / 2``, by angles ``[rows, dim]``."""
    low, high = heads.chunk(2, -1)
    return heads * cos[:, None] + torch.cat((-high, low), -1) * sin[:, None]


def put_rows(store: Tensor, scales: Tensor | None, rows: Tensor, slots: Tensor) -> None:
    """Writes ``rows`` ``[heads, rows, dim]`` to ``slots`` of ``store`` ``[heads, slots, dim]``.

    With ``scales`` ``[heads, slots]`` as codes.
    """
    if scales is not None:
        rows = rows.float()
        scale = rows.abs().amax(-1) / 127
        scales.index_copy_(1, slots, scale)
        rows = (rows / scale.clamp_min(torch.finfo(torch.float32).tiny)[..., None]).round()
    store.index_copy_(1, slots, rows.to(store.dtype))
