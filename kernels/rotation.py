"""Rotary turns as tables, for any pairing of dimensions and any part of the head.

``turned[d] = x[d] cos[d] + x[partner[d]] sin[d]``, with the sign of the pair folded into ``sin``;
dimensions without a position have ``cos`` 1 and ``sin`` 0. Angles should be computed in double
precision: a single-precision one is off by 4e-3 at position 131k.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .checks import Ints, require


@dataclass(frozen=True, slots=True)
class Turns:
    """``partner`` ``[dim]`` int32; ``cos`` and ``sin`` ``[turns, dim]`` float32, one row a turn.

    ``halves`` promises that ``i`` and ``i + dim / 2`` are partners, which is faster to load.
    """

    partner: Tensor
    cos: Tensor
    sin: Tensor
    halves: bool = False

    def check(self, dim: int, device: torch.device) -> None:
        """Raises `KernelArgumentError` unless these turn vectors of ``dim`` on ``device``."""
        require(self.partner.shape == (dim,), f"turns are not of {dim} dimensions")
        require(self.partner.dtype == torch.int32, "partners must be int32")
        for table in (self.cos, self.sin):
            require(table.ndim == 2 and table.shape[1] == dim, f"angles must be [turns, {dim}]")
            require(table.dtype == torch.float32, "angles must be float32")
            require(table.is_contiguous(), "angles must be contiguous")
        require(self.cos.shape == self.sin.shape, "cos and sin differ in shape")
        require(self.cos.device == device, f"angles on {self.cos.device}, work on {device}")

    def apply(self, x: Tensor, turn: Tensor | int) -> Tensor:
        """``x`` ``[..., dim]`` turned, in plain torch; ``turn`` is one row, or one for each."""
        cos, sin = self.cos[turn].to(x.dtype), self.sin[turn].to(x.dtype)
        return x * cos + x[..., self.partner.long()] * sin


def rotary_turns(
    deltas: Ints,
    dim: int,
    rotary_dim: int | None = None,
    interleaved: bool = False,
    base: float = 1e4,
    device: torch.device | str = "cpu",
) -> Turns:
    """Turns by ``deltas`` positions with the usual frequencies ``base ** (-2 i / rotary_dim)``.

    Of the first ``rotary_dim`` dimensions ``i`` turns with ``i + rotary_dim / 2``, or, if
    ``interleaved``, ``2 i`` with ``2 i + 1``.
    """
    rotary_dim = dim if rotary_dim is None else rotary_dim
    half = rotary_dim // 2
    frequencies = base ** (-torch.arange(half, dtype=torch.float64) / half)
    first = torch.arange(half) * 2 if interleaved else torch.arange(half)
    second = first + 1 if interleaved else first + half
    angles = torch.from_numpy(deltas).double()[:, None] * frequencies
    partner = torch.arange(dim, dtype=torch.int32)
    partner[first], partner[second] = second.int(), first.int()
    cos, sin = torch.ones(len(deltas), dim), torch.zeros(len(deltas), dim)
    cos[:, first] = cos[:, second] = angles.cos().float()
    sin[:, first], sin[:, second] = -angles.sin().float(), angles.sin().float()
    return Turns(partner.to(device), cos.to(device), sin.to(device), by_halves(partner))


def by_halves(partner: Tensor) -> bool:
    """Whether ``i`` and ``i + dim / 2`` are partners, ``dim`` being a power of two."""
    dim = len(partner)
    whole = dim % 2 == 0 and dim & (dim - 1) == 0
    return whole and torch.equal(partner, torch.arange(dim, dtype=partner.dtype).roll(dim // 2))
