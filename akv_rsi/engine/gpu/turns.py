"""The architecture's rotation as the tables kernels turn with, found by asking it.

`Rotary.turn` applies the model's own function. Applied to unit vectors it tells, for each
dimension, which one it is paired with, with which sign, and by which column's angle: enough to turn
in a kernel whatever the pairing, and checked against the function itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from akv_rsi.engine.pool import Ints
from akv_rsi.engine.rotary import Angles, Rotary
from akv_rsi.errors import UnsupportedModel
from akv_rsi.kernels.rotation import Turns, by_halves


class Pairing(NamedTuple):
    """Per dimension: ``partner``, ``sign`` of its sine (0: it does not turn), angle columns."""

    partner: Tensor
    sign: Tensor
    cos: Tensor
    sin: Tensor


class TurnTables:
    """Turn tables of a model on a device, for each rotary kind."""

    def __init__(self, rotary: Rotary, dim: int, device: torch.device) -> None:
        self._rotary = rotary
        self._dim = dim
        self._device = device
        self._pairings: dict[str, Pairing] = {}

    def turns(self, deltas: Ints, kind: str) -> Turns:
        """Tables that move vectors by each of ``deltas`` positions."""
        if kind not in self._pairings:
            self._pairings[kind] = find_pairing(self._rotary, kind, self._dim)
        pairing, angles = self._pairings[kind], self._rotary.angles(deltas, kind)
        cos, sin = spread(pairing, angles)
        partner = pairing.partner.int()
        halves = by_halves(partner)
        device = self._device
        return Turns(partner.to(device), cos.to(device), sin.to(device), halves)


def spread(pairing: Pairing, angles: Angles) -> Angles:
    """Angles per column as factors per dimension, the pair's sign in the sine."""
    cos = torch.where(pairing.sign == 0, 1.0, angles.cos[:, pairing.cos])
    return Angles(cos.contiguous(), (angles.sin[:, pairing.sin] * pairing.sign).contiguous())


def find_pairing(rotary: Rotary, kind: str, dim: int) -> Pairing:
    """How `rotary` turns vectors of ``dim`` dimensions.

    Raises `UnsupportedModel` when it is no turn of pairs.
    """
    columns = rotary.angles(np.zeros(1, dtype=np.int64), kind).cos.shape[1]
    names = torch.arange(1.0, columns + 1).expand(dim, columns)
    nothing, unit = torch.zeros(dim, columns), torch.eye(dim)[None]
    still = rotary.turn(unit, Angles(nothing, nothing))[0]
    by_cos = rotary.turn(unit, Angles(names, nothing))[0] - still
    by_sin = (rotary.turn(unit, Angles(nothing, names))[0] - still).T
    value, partner = by_sin.abs().max(1)
    sign = by_sin.gather(1, partner[:, None])[:, 0].sign()
    turned = sign != 0
    pairing = Pairing(
        torch.where(turned, partner, torch.arange(dim)),
        sign,
        torch.where(turned, by_cos.diagonal().long() - 1, 0),
        torch.where(turned, value.long() - 1, 0),
    )
    angles = rotary.angles(np.array([5]), kind)
    probe = torch.linspace(-1.0, 2.0, dim)[None, None]
    cos, sin = spread(pairing, angles)
    ours = probe * cos + probe[..., pairing.partner] * sin
    if not torch.allclose(ours, rotary.turn(probe, angles), atol=1e-5):
        raise UnsupportedModel("its rotary positions do not turn pairs of dimensions")
    return pairing
