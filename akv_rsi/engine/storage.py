"""What lies in a slot: keys or values as computed, or rounded to 8 bits with a scale for each head.

Rounded vectors are symmetric: ``x = code * scale`` with codes in ``[-127, 127]``, and one
single-precision scale for each token and head, the largest magnitude over 127. So no component is
off by more than half a scale. A vector that is no numbers gets a scale that is none, and reads as
such. What is moved keeps its codes and its scale: only computing something anew rounds.
"""

from __future__ import annotations

import torch
from torch import Tensor

LEVELS = 127


class Stored:
    """One layer's keys, or its values: ``data`` ``[heads, slots, dim]``.

    With ``scales`` ``[heads, slots]`` the data are codes. Vectors are read in ``dtype``.
    """

    def __init__(
        self, heads: int, slots: int, dim: int, dtype: torch.dtype, device: torch.device, int8: bool
    ) -> None:
        self.dtype = dtype
        self.data = _rows(heads, slots, dim, torch.int8 if int8 else dtype, device)
        self.scales = torch.empty(heads, slots, device=device) if int8 else None

    @property
    def token_bytes(self) -> int:
        """What one token takes."""
        heads, _, dim = self.data.shape
        scale = 0 if self.scales is None else self.scales.element_size()
        return heads * (dim * self.data.element_size() + scale)

    @property
    def read_bytes(self) -> int:
        """What one token takes when it has been read."""
        heads, _, dim = self.data.shape
        return heads * dim * self.dtype.itemsize

    def clear(self, slots: int) -> None:
        """The first ``slots`` hold zeros."""
        self.data[:, :slots] = 0
        if self.scales is not None:
            self.scales[:, :slots] = 0

    def read(self, slots: Tensor) -> Tensor:
        """``[heads, n, dim]`` of ``n`` slots."""
        data = self.data.index_select(1, slots)
        if self.scales is None:
            return data
        return unrounded(data, self.scales.index_select(1, slots), self.dtype)

    def write(self, slots: Tensor, x: Tensor) -> Tensor:
        """Puts ``x`` ``[heads, n, dim]`` into ``n`` slots; returns it as it will be read."""
        if self.scales is None:
            self.data.index_copy_(1, slots, x)
            return x
        codes, scales = rounded(x)
        self.data.index_copy_(1, slots, codes)
        self.scales.index_copy_(1, slots, scales)
        return unrounded(codes, scales, self.dtype)

    def copy(self, sources: Tensor, targets: Tensor) -> None:
        """Copies from slots to slots, bit by bit."""
        self.data.index_copy_(1, targets, self.data.index_select(1, sources))
        if self.scales is not None:
            self.scales.index_copy_(1, targets, self.scales.index_select(1, sources))


def rounded(x: Tensor) -> tuple[Tensor, Tensor]:
    """Codes ``[..., dim]`` and scales ``[...]`` of vectors ``[..., dim]``."""
    x = x.float()
    scales = x.abs().amax(-1) / LEVELS
    codes = (x / scales.clamp_min(torch.finfo(torch.float32).tiny)[..., None]).round_()
    return codes.to(torch.int8), scales


def unrounded(codes: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """The vectors ``[..., dim]`` of codes and scales."""
    return (codes * scales[..., None]).to(dtype)


def _rows(heads: int, slots: int, dim: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Storage ``[heads, slots, dim]``; on a GPU all heads of a page lie together."""
    if device.type == "cpu":
        return torch.empty(heads, slots, dim, dtype=dtype)
    return torch.empty(slots, heads, dim, dtype=dtype, device=device).transpose(0, 1)
