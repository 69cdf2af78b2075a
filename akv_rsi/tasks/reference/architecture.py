"""The reference agent's architecture."""

from __future__ import annotations

from transformers import LlamaConfig


def reference_config(words: int, rope_theta: float) -> LlamaConfig:
    """A Llama of about two million parameters with one KV head, for speed on a CPU.

    Its one head is wide: looking a word up by its name needs dimensions that rotate little over the
    span, and with 64 of them and a theta of 10,000 there were too few to tell 500 words apart.
    """
    return LlamaConfig(
        vocab_size=words,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=128,
        rope_parameters={"rope_type": "default", "rope_theta": rope_theta},
        max_position_embeddings=4096,  # it runs past the span it was trained on, and fails there
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
