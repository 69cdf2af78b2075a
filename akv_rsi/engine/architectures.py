"""Which architectures the engine runs here: each proved on a tiny model with random weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from akv_rsi.config import EngineConfig
from akv_rsi.engine.model import Model
from akv_rsi.errors import UnsupportedModel

_SHAPE: Mapping[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
}
_DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
# Name: transformers model type, and what sets it apart.
ARCHITECTURES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "Llama": ("llama", {}),
    "Llama, llama3 scaling": ("llama", {"rope_parameters": _LLAMA3}),
    "Llama, dynamic scaling": ("llama", {"rope_parameters": _DYNAMIC}),
    "Qwen2": ("qwen2", {}),
    "Qwen2, sliding window": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 11, "max_window_layers": 2},
    ),
    "Qwen3, yarn": ("qwen3", {"rope_parameters": _YARN}),
    "Mistral, sliding window": ("mistral", {"sliding_window": 13}),
    "Gemma2": ("gemma2", {"sliding_window": 9, "query_pre_attn_scalar": 16}),
    "Gemma3": ("gemma3_text", {"sliding_window": 9, "query_pre_attn_scalar": 16}),
    "Phi3, partial rotary": ("phi3", {"partial_rotary_factor": 0.5}),
    "GLM4, interleaved rotary": ("glm4", {}),
    "OLMo2": ("olmo2", {}),
    "SmolLM3, layers without positions": ("smollm3", {}),
    "GPT-OSS, attention sinks": (
        "gpt_oss",
        {
            "sliding_window": 9,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "max_position_embeddings": 131072,  # what its default scaling is made for
        },
    ),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an architecture runs, how exactly, or why not.

    ``logits`` is the largest difference from stock eager attention, ``keys`` that of turned keys
    from recomputed ones, relative to the largest key.
    """

    name: str
    supported: bool
    logits: float | None = None
    keys: float | None = None
    reason: str = ""


def survey() -> Iterator[Verdict]:
    """A verdict on each of `ARCHITECTURES`, on this machine's transformers."""
    for name, (kind, special) in ARCHITECTURES.items():
        try:
            proof = Model.from_pretrained(tiny(kind, special), EngineConfig()).proof
        except UnsupportedModel as reason:
            yield Verdict(name, False, reason=str(reason))
        else:
            yield Verdict(name, True, proof.logits, proof.keys)


def tiny(kind: str, special: Mapping[str, Any], seed: int = 0) -> Any:
    """A random model of that type, every parameter far enough from its default to matter."""
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = AutoConfig.for_model(kind, **{**_SHAPE, **special})
        model = AutoModelForCausalLM.from_config(config)
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.data.add_(torch.randn_like(parameter), alpha=0.2)
    return model
