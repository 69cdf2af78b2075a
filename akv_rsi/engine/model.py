"""Any transformers causal LM with rotary positions; no hand-written model per architecture.

At load the architecture proves itself (`selftest`), or is refused with the reason.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from akv_rsi.config import EngineConfig
from akv_rsi.engine.files import model_folder, one_line, quiet
from akv_rsi.engine.hook import Attends, forward
from akv_rsi.engine.linear import pack_linears
from akv_rsi.engine.selftest import Proof, prove
from akv_rsi.errors import ModelLoadError


class Model:
    """A transformers model proved fit for the engine; make one with `load_model`."""

    def __init__(self, hf: Any, config: EngineConfig, proof: Proof) -> None:
        self.hf = hf
        self.config = config
        self.proof = proof
        self.layers = proof.layers
        self.rotary = proof.rotary
        text = hf.config.get_text_config()
        self.vocabulary: int = text.vocab_size
        self.max_positions: int = text.max_position_embeddings

    @classmethod
    def from_pretrained(cls, hf: Any, config: EngineConfig) -> Model:
        """A model around a transformers one that is already in memory, and is taken over.

        Raises `UnsupportedModel` with the reason when it cannot be run exactly.
        """
        hf.eval().requires_grad_(False)
        hf.to(device=config.device, dtype=getattr(torch, config.dtype))
        if config.device == "cpu":
            pack_linears(hf)
        else:
            from akv_rsi.engine.gpu.layers import fuse_layers

            fuse_layers(hf)
        return cls(hf, config, prove(hf, config))

    @torch.inference_mode()
    def forward(self, batch: Attends) -> Tensor:
        """Logits ``[kept rows, vocabulary]`` in single precision of one pass."""
        return forward(self.hf, self.layers, batch)


def load_model(path: str | Path, config: EngineConfig) -> Model:
    """The model of a folder, a ``.gguf`` file or a hub id, in ``config.dtype``, proved at load.

    Raises `ModelLoadError` for missing, corrupt or incomplete files and `UnsupportedModel` for an
    architecture that cannot be run exactly.
    """
    import transformers
    from safetensors import SafetensorError

    folder = model_folder(path)
    try:
        with quiet():
            hf, info = transformers.AutoModelForCausalLM.from_pretrained(
                str(folder),
                dtype=getattr(torch, config.dtype),
                local_files_only=True,
                output_loading_info=True,
            )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelLoadError(f"cannot load {path}: {one_line(error)}") from error
    broken = sorted(info["missing_keys"]) + sorted(key for key, *_ in info["mismatched_keys"])
    if broken:
        raise ModelLoadError(f"{path} lacks fitting weights for {', '.join(broken[:3])}")
    return Model.from_pretrained(hf, config)
