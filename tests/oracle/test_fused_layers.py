"""Decoder layers with packed products and fused steps give what transformers gives."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from akv_rsi.kernels.layer.reference import gated_rows, normed_rows, turned_heads
from torch import Tensor

from akv_rsi.config import EngineConfig
from akv_rsi.engine.gpu.layers import FusedLayer, fuse_layers
from akv_rsi.engine.selftest import prove
from akv_rsi.errors import UnsupportedModel

from .models import CONFIGS, tiny

FUSED = ("llama", "llama3", "qwen2", "qwen2-sliding", "mistral-sliding")


@pytest.fixture(autouse=True)
def _plain_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels have tests of their own."""

    def turn(heads: Tensor, cos: Tensor, sin: Tensor, dim: int, queries: int) -> Any:
        turned = turned_heads(heads.unflatten(1, (-1, dim)), cos, sin)
        return turned[:, :queries], turned[:, queries:]

    monkeypatch.setattr("akv_rsi.engine.gpu.layers.norm", normed_rows)
    monkeypatch.setattr("akv_rsi.engine.gpu.layers.gate", gated_rows)
    monkeypatch.setattr("akv_rsi.engine.gpu.layers.turn", turn)


@pytest.mark.parametrize("name", FUSED)
def test_fused_layers_prove_themselves_against_stock_attention(name: str) -> None:
    hf = deepcopy(tiny(name))
    fuse_layers(hf)
    assert all(isinstance(layer, FusedLayer) for layer in hf.model.layers)
    assert prove(hf, EngineConfig()).logits < 1e-5
    for layer in hf.model.layers:
        layer._gates._weight.mul_(1.01)
    with pytest.raises(UnsupportedModel, match="logits differ"):  # from those of the stock layers
        prove(_apart(hf), EngineConfig())


def _apart(hf: Any) -> Any:
    """The stock layers get weights of their own again: right ones, beside wrong packed ones."""
    for layer in hf.model.layers:
        for linear in (layer.stock.mlp.gate_proj, layer.stock.mlp.up_proj):
            linear.weight = torch.nn.Parameter(linear.weight / 1.01, requires_grad=False)
    return hf


def test_a_packed_weight_is_one_with_its_parts() -> None:
    hf = deepcopy(tiny("llama"))
    fuse_layers(hf)
    layer = hf.model.layers[0]
    layer.stock.self_attn.k_proj.weight.zero_()
    assert layer._joint._weight[: layer._queries].any()
    assert not layer._joint._weight[layer._queries : layer._queries + layer._keys].any()


@pytest.mark.parametrize("name", [name for name in CONFIGS if name not in FUSED])
def test_other_layers_stay_as_they_are(name: str) -> None:
    hf = deepcopy(tiny(name))
    fuse_layers(hf)
    assert not any(isinstance(module, FusedLayer) for module in hf.modules())
