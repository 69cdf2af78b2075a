"""A model small enough for hundreds of passes a second, and engines on it."""

from __future__ import annotations

from copy import deepcopy
from functools import lru_cache
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from akv_rsi.config import EngineConfig
from akv_rsi.engine.engine import Engine
from akv_rsi.engine.model import Model

VOCAB = 61


@lru_cache
def tiny_llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.3,
    )
    return LlamaForCausalLM(config)


@lru_cache
def model(**sizes: Any) -> Model:
    config = EngineConfig(**{"page_size": 4, "pages": 64, "self_test": False, **sizes})
    return Model.from_pretrained(deepcopy(tiny_llama()), config)


def engine(**sizes: Any) -> Engine:
    made = model(**sizes)
    return Engine(made, made.config)
