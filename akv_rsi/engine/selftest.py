"""The proof at load: what a model must show before the engine runs it.

1. Its attention passes only arguments we honour, and windows its configuration announces.
2. Keys computed some positions later equal the same keys turned by that delta, layer by layer
   (a layer whose keys do not move has no positions and ignores deltas).
3. Logits through the engine's own attention equal stock eager attention, with rows out of order:
   nothing but attention may mix rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from akv_rsi.config import EngineConfig
from akv_rsi.engine.batch import Batch
from akv_rsi.engine.hook import LayerSpec, exchange, forward, layer_call, register, run
from akv_rsi.engine.pool import LayerShape, PagePool
from akv_rsi.engine.rotary import Rotary
from akv_rsi.engine.view import View
from akv_rsi.errors import UnsupportedModel

PROBE_TOKENS = 48
SHIFT = 37
# Relative to the largest value compared; bfloat16 rounds to 8 bits.
TOLERANCE = {"float32": 1e-3, "bfloat16": 8e-2}


@dataclass(frozen=True, slots=True)
class Proof:
    """What a model showed: its layers, its rotary positions, and how exact both are.

    ``logits`` is the largest difference from stock eager attention (0 when that test was left out),
    ``keys`` that of turned keys from recomputed ones, relative to the largest key.
    """

    layers: tuple[LayerSpec, ...]
    rotary: Rotary
    keys: float
    logits: float = 0.0


@dataclass(slots=True)
class _Seen:
    module: nn.Module
    key: Tensor
    value: Tensor
    options: dict[str, Any]


@torch.inference_mode()
def prove(hf: Any, config: EngineConfig) -> Proof:
    """What the model showed; it attends through us from now on.

    Raises `UnsupportedModel` with the reason when it does not pass.
    """
    try:
        tokens = _probe_tokens(hf)
        reference = _eager_logits(hf, tokens) if config.self_test else None
        register(hf)
        proof = _turned_keys(hf, config, tokens)
        if reference is not None:
            proof = replace(proof, logits=_compare_logits(hf, config, proof, tokens, reference))
    except (UnsupportedModel, RuntimeError) as reason:  # torch reports shapes as RuntimeError
        name = type(hf).__name__
        raise UnsupportedModel(f"{name} cannot be run exactly: {reason}") from reason
    return proof


def _probe_tokens(hf: Any) -> Tensor:
    text = hf.config.get_text_config()
    window = getattr(text, "sliding_window", None) or 0
    count = PROBE_TOKENS if window > 512 else max(PROBE_TOKENS, window + 16)
    generator = torch.Generator().manual_seed(0)
    return torch.randint(text.vocab_size, (1, count), generator=generator)


def _eager_logits(hf: Any, tokens: Tensor) -> Tensor:
    exchange(hf, "eager")
    out = hf(input_ids=tokens.to(hf.device), use_cache=False, logits_to_keep=PROBE_TOKENS)
    logits: Tensor = out.logits[0].float()
    return logits.cpu()


def _turned_keys(hf: Any, config: EngineConfig, tokens: Tensor) -> Proof:
    here, there = _record(hf, tokens, 0), _record(hf, tokens, SHIFT)
    if not here or sorted(here) != list(range(len(here))):
        raise UnsupportedModel("its layers do not all attend through the registered function")
    text = hf.config.get_text_config()
    types = getattr(text, "layer_types", None) or [None] * len(here)
    rotary = Rotary(hf, here[0].module)
    layers, worst = [], 0.0
    for index, seen in sorted(here.items()):
        kind = rotary.kind_of(types[index])
        window = layer_call(seen.module, seen.options, kind).window
        _check_window(text, types[index], window)
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
        layers.append(LayerSpec(shape, kind if moved <= still else None, window))
    return Proof(tuple(layers), rotary, worst)


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
        seen[call.layer] = _Seen(module, key.cpu(), value.cpu(), options)
        # Any mixing of the past will do here. One that does not look at keys leaves no rounding of
        # theirs in what follows, which grows from layer to layer.
        group = query.shape[0] // key.shape[0]
        weights = (torch.ones(count, count).tril() / torch.arange(1, count + 1)[:, None]).to(value)
        return (weights @ value.repeat_interleave(group, 0)).transpose(0, 1)

    positions, last = torch.arange(first, first + count)[None], torch.tensor([count - 1])
    run(hf, tokens.to(hf.device), positions.to(hf.device), last.to(hf.device), attend)
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


def _empty_pass(pool: PagePool, rotary: Rotary) -> Batch:
    if pool.device.type == "cpu":
        return Batch(pool, rotary)
    from akv_rsi.engine.gpu.batch import DeviceBatch
    from akv_rsi.engine.gpu.turns import TurnTables

    tables = TurnTables(rotary, pool.keys[0].shape[2], pool.device)
    return DeviceBatch(pool, rotary, tables=tables)


def _compare_logits(
    hf: Any, config: EngineConfig, proof: Proof, tokens: Tensor, reference: Tensor
) -> float:
    count, page = tokens.shape[1], config.page_size
    shapes = [layer.shape for layer in proof.layers]
    dtype = getattr(torch, config.dtype)
    pool = PagePool(shapes, -(-count // page), page, dtype, torch.device(config.device))
    batch, view = _empty_pass(pool, proof.rotary), View(count)
    ids = tokens[0].numpy()
    chunks = np.array_split(np.arange(count), 3)
    lease = pool.lease(count)
    segments = []
    for chunk in chunks:
        slots = lease.take(len(chunk))
        view.append(slots)
        segments.append((ids[chunk], chunk, slots, view.keys(), chunk + 1))
    for segment in reversed(segments):
        batch.add_segment(*segment)
    rows = np.argsort(np.concatenate(chunks[::-1]))
    batch.keep(rows[-PROBE_TOKENS:].tolist())  # of a long probe the last: those with a full window
    error = float((forward(hf, proof.layers, batch).cpu() - reference).abs().max())
    scale = max(1.0, float(reference.abs().max()))
    if not error <= TOLERANCE[config.dtype] * scale:
        raise UnsupportedModel(f"logits differ from stock eager attention by {error:.1e}")
    return error
