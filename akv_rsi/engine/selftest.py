"""The proof at load: what a model must show before the engine runs it.

1. Its attention passes only arguments we honour, and windows its configuration announces.
2. Keys computed some positions later equal the same keys turned by that delta, layer by layer
   (a layer whose keys do not move has no positions and ignores deltas).
3. Logits through the engine's own attention equal stock eager attention, with rows out of order:
   nothing but attention may mix rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from akv_rsi.config import EngineConfig
from akv_rsi.engine.batch import Batch
from akv_rsi.engine.model import ATTENTION, LayerSpec, Model, Proof, attention, layer_call, run
from akv_rsi.engine.pool import LayerShape, PagePool
from akv_rsi.engine.rotary import Rotary
from akv_rsi.engine.view import View
from akv_rsi.errors import UnsupportedModel

PROBE_TOKENS = 48
SHIFT = 37
# Relative to the largest value compared; bfloat16 rounds to 8 bits.
TOLERANCE = {"float32": 1e-3, "bfloat16": 8e-2}


@dataclass(slots=True)
class _Seen:
    module: nn.Module
    key: Tensor
    value: Tensor
    options: dict[str, Any]


@torch.inference_mode()
def prove(hf: Any, config: EngineConfig) -> Model:
    """The model, with its proof; `UnsupportedModel` with the reason when it does not pass."""
    from transformers import AttentionInterface

    name = type(hf).__name__
    AttentionInterface.register(ATTENTION, attention)
    try:
        tokens = _probe_tokens(hf)
        reference = _eager_logits(hf, tokens) if config.self_test else None
        _set_attention(hf, ATTENTION)
        model, key_error = _turned_keys(hf, config, tokens)
        error = 0.0
        if reference is not None:
            error = _compare_logits(model, tokens, reference, TOLERANCE[config.dtype])
    except (UnsupportedModel, RuntimeError) as reason:  # torch reports shapes as RuntimeError
        raise UnsupportedModel(f"{name} cannot be run exactly: {reason}") from reason
    model.proof = Proof(error, key_error)
    return model


def _probe_tokens(hf: Any) -> Tensor:
    text = hf.config.get_text_config()
    window = getattr(text, "sliding_window", None) or 0
    count = PROBE_TOKENS if window > 512 else max(PROBE_TOKENS, window + 16)
    generator = torch.Generator().manual_seed(0)
    return torch.randint(text.vocab_size, (1, count), generator=generator)


def _set_attention(hf: Any, name: str) -> None:
    hf.set_attn_implementation(name)
    if hf.config.get_text_config()._attn_implementation != name:
        raise UnsupportedModel("its attention is not exchangeable")


def _eager_logits(hf: Any, tokens: Tensor) -> Tensor:
    _set_attention(hf, "eager")
    logits: Tensor = hf(input_ids=tokens, use_cache=False).logits[0].float()
    return logits


def _turned_keys(hf: Any, config: EngineConfig, tokens: Tensor) -> tuple[Model, float]:
    here, there = _record(hf, tokens, 0), _record(hf, tokens, SHIFT)
    if not here or sorted(here) != list(range(len(here))):
        raise UnsupportedModel("its layers do not all attend through the registered function")
    text = hf.config.get_text_config()
    types = getattr(text, "layer_types", None) or [None] * len(here)
    rotary = Rotary(hf, here[0].module)
    layers, worst = [], 0.0
    for index, seen in sorted(here.items()):
        kind = rotary.kind_of(types[index])
        _check_window(text, types[index], layer_call(seen.module, seen.options, kind).window)
        turned = rotary.turn(seen.key, rotary.angles(np.array([SHIFT]), kind))
        scale = float(seen.key.abs().max())
        moved = float((turned - there[index].key).abs().max()) / scale
        still = float((seen.key - there[index].key).abs().max()) / scale
        if min(moved, still) > TOLERANCE[config.dtype]:
            raise UnsupportedModel(
                f"keys of layer {index} do not turn by their delta (off by {min(moved, still):.1e})"
            )
        worst = max(worst, min(moved, still))
        shape = LayerShape(seen.key.shape[0], seen.key.shape[-1], seen.value.shape[-1])
        layers.append(LayerSpec(shape, kind if moved <= still else None))
    return Model(hf, config, layers, rotary), worst


def _record(hf: Any, tokens: Tensor, first: int) -> dict[int, _Seen]:
    """Keys, values and options of every layer when the probe starts at position ``first``."""
    seen: dict[int, _Seen] = {}
    count = tokens.shape[1]

    def attend(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, options: dict[str, Any]
    ) -> Tensor:
        call = layer_call(module, options, "")
        if call.layer in seen:
            raise UnsupportedModel(f"layer {call.layer} attends twice")
        seen[call.layer] = _Seen(module, key, value, options)
        # Any mixing of the past will do here, as long as positions enter only by rotation.
        group = query.shape[0] // key.shape[0]
        scores = query @ key.repeat_interleave(group, 0).transpose(1, 2) * call.scale
        causal = torch.full((count, count), -torch.inf).triu(1).to(scores.dtype)
        weights = torch.softmax((scores + causal).float(), -1).to(value.dtype)
        return (weights @ value.repeat_interleave(group, 0)).transpose(0, 1)

    positions = torch.arange(first, first + count)[None]
    run(hf, tokens, positions, torch.tensor([count - 1]), attend)
    return seen


def _check_window(text: Any, layer_type: str | None, window: int | None) -> None:
    """The window an attention call announces is all we see of it: the mask is not built."""
    announced = getattr(text, "sliding_window", None)
    if layer_type not in (None, "full_attention", "sliding_attention"):
        raise UnsupportedModel(f"layers of type {layer_type}")
    if layer_type == "sliding_attention" and window != announced:
        raise UnsupportedModel("a sliding layer does not announce its window")
    if layer_type == "full_attention" and window is not None:
        raise UnsupportedModel("a full-attention layer announces a window")


def _compare_logits(model: Model, tokens: Tensor, reference: Tensor, tolerance: float) -> float:
    count = tokens.shape[1]
    page = model.config.page_size
    shapes = [layer.shape for layer in model.layers]
    pool = PagePool(shapes, -(-count // page), page, getattr(torch, model.config.dtype))
    batch = Batch(pool, model.rotary)
    view = View(count)
    last: int | None = None
    ids = tokens[0].numpy()
    chunks = np.array_split(np.arange(count), 3)
    segments = []
    for chunk in chunks:
        slots = pool.lease(len(chunk), last).take(len(chunk))
        last = int(slots[-1])
        view.append(slots)
        segments.append((ids[chunk], chunk, slots, view.keys(), chunk + 1))
    for segment in reversed(segments):
        batch.add_segment(*segment)
    batch.keep(np.argsort(np.concatenate(chunks[::-1])).tolist())
    error = float((model.forward(batch) - reference).abs().max())
    scale = max(1.0, float(reference.abs().max()))
    if not error <= tolerance * scale:
        raise UnsupportedModel(f"logits differ from stock eager attention by {error:.1e}")
    return error
