"""Models with random weights in the shape of real ones: in transformers, and in the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from akv_rsi.config import EngineConfig
from akv_rsi.engine.engine import Engine
from akv_rsi.engine.model import Model

VOCABULARY = 49152

# Llama-3.1-8B's.
LLAMA_8B: Mapping[str, Any] = MappingProxyType(
    {
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5e5},
        "bos_token_id": None,
        "eos_token_id": None,
    }
)
# By the name a user gives them.
SHAPES: Mapping[str, Mapping[str, Any]] = MappingProxyType({"8b": LLAMA_8B})


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


def random_llama(shape: Mapping[str, Any], config: EngineConfig, seed: int) -> Any:
    """A transformers Llama, made where ``config`` has it run and in its ``dtype``."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, config.dtype))
    try:
        with torch.device(config.device):
            return LlamaForCausalLM(LlamaConfig(**deepcopy(dict(shape))))
    finally:
        torch.set_default_dtype(before)


@torch.inference_mode()
def speak_only(hf: Any, tokens: Sequence[int]) -> None:
    """Has a model of random weights choose none but ``tokens``, at temperature 0.

    The output weights of all others become zeros, and so their logits: the largest of many random
    ones lies above. It computes as much as before.
    """
    weights = hf.lm_head.weight
    spoken = weights[list(tokens)].clone()
    weights.zero_()
    weights[list(tokens)] = spoken


def random_tokens(count: int, seed: int) -> tuple[int, ...]:
    """``count`` token ids."""
    generator = torch.Generator().manual_seed(seed)
    tokens: list[int] = torch.randint(1, VOCABULARY, (count,), generator=generator).tolist()
    return tuple(tokens)
