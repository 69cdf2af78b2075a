"""Rotary positions, generic over architectures: moving a rotated key or query by a delta.

`` (R_n q) . (R_target k) = (R_{n - delta} q) . (R_birth k)`` with ``delta = target - birth``: a
repositioned key can stay as it is when the query is turned back by the key's delta. The turn is
made by the architecture's own ``apply_rotary_pos_emb``, whatever it pairs or leaves out; the angles
come from the frequencies of the model's own rotary module, in double precision (a single-precision
angle is off by 4e-3 at position 131k).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from akv_rsi.engine.pool import Ints
from akv_rsi.errors import UnsupportedModel

# Frequencies that depend on the length of the sequence cannot be moved by a delta.
REFUSED_TYPES = frozenset({"dynamic", "longrope"})


class Angles(NamedTuple):
    """``cos`` and ``sin``, each ``[n, rotary columns]``, of ``n`` deltas."""

    cos: Tensor
    sin: Tensor


class Rotary:
    """The rotary module of a model and the function its attention layers turn vectors with.

    ``kind`` is the layer type where the module has frequencies per type, else the empty string.
    """

    def __init__(self, model: nn.Module, attention: nn.Module) -> None:
        self._module = _rotary_module(model)
        self._apply = _apply_function(attention)
        self._frequencies: dict[str, Tensor] = {}

    def kind_of(self, layer_type: str | None) -> str:
        """The kind of a layer of that type."""
        typed = layer_type is not None and hasattr(self._module, f"{layer_type}_inv_freq")
        return layer_type if typed and layer_type is not None else ""

    def angles(self, deltas: Ints, kind: str) -> Angles:
        """The angles that move a vector by each of ``deltas`` positions, in single precision."""
        if kind not in self._frequencies:
            self._frequencies[kind] = self._columns(kind)
        turns = torch.from_numpy(deltas.astype(np.float64))[:, None] * self._frequencies[kind]
        return Angles(turns.cos().float(), turns.sin().float())

    def turn(self, x: Tensor, angles: Angles) -> Tensor:
        """``x`` of ``[heads, n, dim]`` moved by ``angles`` of ``n`` deltas (or of one, for all)."""
        cos, sin = angles.cos[None].to(x.dtype), angles.sin[None].to(x.dtype)
        turned, _ = self._apply(x[None], x[None, :0], cos, sin)
        moved: Tensor = turned.squeeze(0)
        return moved

    def _columns(self, kind: str) -> Tensor:
        """The frequency of each column of the module's tables, in double precision.

        The module is asked for position 1, where ``cos`` and ``sin`` name the frequency.
        """
        prefix = f"{kind}_" if kind else ""
        frequencies: Tensor = getattr(self._module, f"{prefix}inv_freq").double().cpu()
        scale = float(getattr(self._module, f"{prefix}attention_scaling", 1.0))
        one = torch.ones(1, 1, dtype=torch.long)
        extra = (kind,) if kind else ()
        cos, sin = self._module(torch.zeros(1, 1, 1), one, *extra)
        if cos.ndim != 3:
            raise UnsupportedModel("its rotary tables are not [batch, token, column]")
        columns = torch.stack((cos[0, 0], sin[0, 0]), -1).double() / scale
        known = torch.stack((frequencies.cos(), frequencies.sin()), -1)
        distance = (columns[:, None] - known[None]).norm(dim=-1)
        nearest, index = distance.min(1)
        if nearest.max() > 1e-5:
            raise UnsupportedModel("its rotary tables are not cos and sin of position x frequency")
        return frequencies[index]


def _rotary_module(model: nn.Module) -> Any:
    found = {id(m): m for name, m in model.named_modules() if name.endswith("rotary_emb")}
    if len(found) != 1:
        raise UnsupportedModel(f"it has {len(found)} rotary modules, not one")
    (module,) = found.values()
    types = getattr(module, "rope_type", "default")
    refused = REFUSED_TYPES & set(types.values() if isinstance(types, dict) else (types,))
    if refused:
        raise UnsupportedModel(f"rotary positions of type {', '.join(sorted(refused))}")
    return module


def _apply_function(attention: nn.Module) -> Callable[..., tuple[Tensor, Tensor]]:
    module = sys.modules[type(attention).__module__]
    function: Callable[..., tuple[Tensor, Tensor]] | None = getattr(
        module, "apply_rotary_pos_emb", None
    )
    if function is None or list(inspect.signature(function).parameters)[:4] != [
        "q", "k", "cos", "sin",
    ]:  # fmt: skip
        raise UnsupportedModel("its attention has no apply_rotary_pos_emb(q, k, cos, sin)")
    return function
