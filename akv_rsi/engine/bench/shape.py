"""A model in the shape of SmolLM2-135M with random weights: in transformers, and in the engine."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NamedTuple

import torch

from akv_rsi.config import EngineConfig
from akv_rsi.engine.engine import Engine
from akv_rsi.engine.model import Model

VOCABULARY = 49152


class Pair(NamedTuple):
    """One model twice, on the same weights: as transformers runs it, and as the engine does."""

    stock: Any
    engine: Engine


def smollm2_pair(config: EngineConfig, seed: int) -> Pair:
    """The shape of SmolLM2-135M, in ``config.dtype``."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    shape = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 1e5},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    stock = LlamaForCausalLM(shape).eval().requires_grad_(False)
    stock.to(getattr(torch, config.dtype))
    with torch.device("meta"):
        twin = LlamaForCausalLM(deepcopy(shape))
    rotary = deepcopy(stock.model.rotary_emb)
    twin.load_state_dict(stock.state_dict(), assign=True)
    twin.model.rotary_emb = rotary
    return Pair(stock, Engine(Model.from_pretrained(twin, config), config))


def random_tokens(count: int, seed: int) -> tuple[int, ...]:
    """``count`` token ids."""
    generator = torch.Generator().manual_seed(seed)
    tokens: list[int] = torch.randint(1, VOCABULARY, (count,), generator=generator).tolist()
    return tuple(tokens)
