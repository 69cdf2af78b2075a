"""Linear layers on a processor: weights laid out for few rows at a time, besides the plain ones.

A pass of decoding has as many rows as sequences. For those torch multiplies by a weight as it lies
in memory, 1.2 to 2.2 times slower than by one in oneDNN's blocked layout; for hundreds of rows the
plain layout wins. So both are kept. Processors without bfloat16 arithmetic multiply in single
precision, several times faster than they emulate it, and round the result once.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# The layout is made for this many rows, and used up to the other.
ROWS, MOST_ROWS = 8, 48


class PackedLinear(nn.Module):
    """A linear layer, ``[..., inputs]`` to ``[..., outputs]``; its parameters stay as they are."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self._dtype = self.weight.dtype
        native = self._dtype != torch.bfloat16 or torch.ops.mkldnn._is_mkldnn_bf16_supported()
        self._inner = self._dtype if native else torch.float32
        weight = self.weight.detach().to(self._inner)
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)
        self._bias = None if self.bias is None else self.bias.detach().to(self._inner)

    def forward(self, x: Tensor) -> Tensor:
        """See `nn.Linear`."""
        x = x.to(self._inner)
        if x.numel() <= MOST_ROWS * x.shape[-1]:
            out = torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")
        else:
            out = F.linear(x, self.weight.to(self._inner), self._bias)
        return out.to(self._dtype)  # type: ignore[no-any-return]  # of an untyped operator


def pack_linears(hf: Any) -> None:
    """Packs every linear layer of ``hf`` that lies on a processor; where torch cannot, none."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return
    for module in list(hf.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Linear and child.weight.device.type == "cpu":
                setattr(module, name, PackedLinear(child))
