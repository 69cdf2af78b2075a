"""Decoder layers of the usual shape with fewer launches: packed products, fused steps between them.

In a decode step the small kernels of a layer as transformers writes it take longer than their work.
Layers of the classes named here are exchanged for `FusedLayer`, which does the same arithmetic; the
proof at load compares them with the originals, which stock attention still runs through. Any other
layer stays as it is.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from akv_rsi.engine.hook import ATTENTION, attention
from akv_rsi.kernels.layer.triton import gate, norm, turn

# Norm, attention, norm, gated products; queries and keys turn by halves of the whole head.
USUAL = ("LlamaDecoderLayer", "MistralDecoderLayer", "Qwen2DecoderLayer")


class FusedLayer(nn.Module):
    """A decoder layer; its weights are those of ``stock``, packed, which it takes over."""

    def __init__(self, stock: Any) -> None:
        super().__init__()
        self.stock = stock
        heads, mlp = stock.self_attn, stock.mlp
        self._heads = heads
        self._joint = _Packed([heads.q_proj, heads.k_proj, heads.v_proj])
        self._gates = _Packed([mlp.gate_proj, mlp.up_proj])
        self._out, self._down = heads.o_proj.weight, mlp.down_proj.weight
        self._queries, self._keys = heads.q_proj.out_features, heads.k_proj.out_features
        self._options: dict[str, Any] = {"scaling": heads.scaling, "sliding_window": _window(heads)}

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        **options: Any,
    ) -> Tensor:
        """See the layer it stands for; ``hidden_states`` ``[1, rows, dim]`` are overwritten."""
        if self._heads.config._attn_implementation != ATTENTION:
            options["position_embeddings"] = position_embeddings
            stock: Tensor = self.stock(hidden_states, **options)
            return stock
        assert position_embeddings is not None
        cos, sin = (table[0] for table in position_embeddings)
        before, after = self.stock.input_layernorm, self.stock.post_attention_layernorm
        rows = hidden_states[0]
        joint = self._joint(norm(rows, before.weight, before.variance_epsilon))
        dim, turned = self._heads.head_dim, joint[:, : self._queries + self._keys]
        queries, keys = turn(turned, cos, sin, dim, self._queries // dim)
        values = joint[:, self._queries + self._keys :].view(len(rows), -1, dim)
        query, key, value = (part.transpose(0, 1)[None] for part in (queries, keys, values))
        mixed, _ = attention(self._heads, query, key, value, None, **self._options)
        rows.addmm_(mixed[0].flatten(1), self._out.T)
        gates = self._gates(norm(rows, after.weight, after.variance_epsilon))
        return rows.addmm_(gate(gates), self._down.T)[None]


class _Packed:
    """Linear layers of one input as one product; their weights become parts of its weight."""

    def __init__(self, linears: list[nn.Linear]) -> None:
        weights: list[Tensor] = [linear.weight for linear in linears]
        biases: list[Tensor] = [linear.bias for linear in linears if linear.bias is not None]
        self._weight = torch.cat(weights)
        self._bias = torch.cat(biases) if biases else None
        at = 0
        for linear in linears:
            part = self._weight[at : at + linear.out_features]
            linear.weight = nn.Parameter(part, requires_grad=False)
            at += linear.out_features

    def __call__(self, x: Tensor) -> Tensor:
        """``[rows, all outputs]``."""
        return F.linear(x, self._weight, self._bias)


def fuse_layers(hf: Any) -> None:
    """Exchanges the layers of ``hf`` that have the usual shape; weights are packed in place."""
    for module in list(hf.modules()):
        if isinstance(module, nn.ModuleList):
            for number, layer in enumerate(module):
                if type(layer).__name__ in USUAL and _is_plain(layer):
                    module[number] = FusedLayer(layer)


def _is_plain(layer: Any) -> bool:
    """Whether a layer of the usual class has nothing that `FusedLayer` does not do."""
    heads, mlp = layer.self_attn, layer.mlp
    linears = [heads.q_proj, heads.k_proj, heads.v_proj, heads.o_proj]
    linears += [mlp.gate_proj, mlp.up_proj, mlp.down_proj]
    joint = [linear.bias is None for linear in linears[:3]]
    return (
        all(type(linear) is nn.Linear for linear in linears)
        and all(joint) == any(joint)
        and all(linear.bias is None for linear in linears[3:])
        and heads.config.hidden_act in ("silu", "swish")
    )


def _window(heads: Any) -> int | None:
    """The window that the layer's attention announces."""
    if type(heads).__name__ == "MistralAttention":
        window: int | None = getattr(heads.config, "sliding_window", None)
    else:
        window = getattr(heads, "sliding_window", None)
    return window
