"""Tiny random models, one per way an architecture treats keys and positions.

``initializer_range`` is large on purpose: with the usual 0.02 a random model's attention is nearly
uniform, and a wrong position or a stale row would hide below the tolerance.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

VOCAB = 97

SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "initializer_range": 0.15,
    "tie_word_embeddings": False,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
}
_SLIDING = ["sliding_attention", "full_attention", "sliding_attention"]

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama"},
    "llama3": {"model_type": "llama", "rope_parameters": _LLAMA3},
    "qwen2": {"model_type": "qwen2"},
    "qwen2-sliding": {
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 9,
        "layer_types": _SLIDING,
    },
    "qwen3-yarn": {"model_type": "qwen3", "rope_parameters": _YARN},
    "mistral-sliding": {"model_type": "mistral", "sliding_window": 11},
    "gemma2": {
        "model_type": "gemma2",
        "sliding_window": 9,
        "layer_types": _SLIDING,
        "attn_logit_softcapping": 4.0,
        "final_logit_softcapping": 20.0,
        "query_pre_attn_scalar": 16,
    },
    "gemma3": {
        "model_type": "gemma3_text",
        "sliding_window": 9,
        "layer_types": _SLIDING,
        "query_pre_attn_scalar": 16,
    },
    "phi3-partial": {"model_type": "phi3", "partial_rotary_factor": 0.5, "sliding_window": None},
    "glm4": {"model_type": "glm4", "partial_rotary_factor": 0.5},
    "olmo2": {"model_type": "olmo2"},
    "smollm3": {"model_type": "smollm3", "no_rope_layers": [1, 0, 1]},
    "gpt-oss": {
        "model_type": "gpt_oss",
        "sliding_window": 9,
        "layer_types": _SLIDING,
        "rope_parameters": _YARN,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
}


@cache
def tiny(name: str, seed: int = 0) -> Any:
    """The model ``name`` of `CONFIGS` with seeded random weights: fp32, eager, evaluation mode."""
    given = dict(CONFIGS[name])
    config = AutoConfig.for_model(given.pop("model_type"), **{**SHAPE, **given})
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        with torch.no_grad():
            for weight in model.parameters():
                if weight.dim() == 1:  # norms start at one and biases at zero: both would hide
                    weight.add_(torch.randn(weight.shape), alpha=0.2)
    return model.float().eval()
