"""Any transformers causal LM with rotary positions, run through our own attention.

The model's code stays its own: we register one attention function and hand it, by a context
variable, to whoever attends in the present forward pass. At load the architecture proves itself
(`selftest`), or is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from akv_rsi.config import EngineConfig
from akv_rsi.engine.attention import LayerCall
from akv_rsi.engine.pool import LayerShape
from akv_rsi.engine.rotary import Rotary
from akv_rsi.errors import ModelLoadError, UnsupportedModel

ATTENTION = "akv"
# Arguments an attention function may be given, beyond those we act on, that change nothing here.
HARMLESS = frozenset({"dropout", "position_ids", "use_cache", "output_attentions"})


class RawCall(Protocol):
    """Attends for one layer: tensors as transformers passes them, without the batch dimension."""

    def __call__(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, options: dict[str, Any]
    ) -> Tensor:
        """``[rows, query heads, value dim]``."""
        ...


_attending: ContextVar[RawCall] = ContextVar("attending")


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, None]:
    """The function registered with transformers; ``[1, heads, rows, dim]`` tensors."""
    if attention_mask is not None:
        raise UnsupportedModel("it builds an attention mask of its own")
    out = _attending.get()(module, query[0], key[0], value[0], options)
    return out[None], None


@contextmanager
def _attended_by(attend: RawCall) -> Iterator[None]:
    token = _attending.set(attend)
    try:
        yield
    finally:
        _attending.reset(token)


class Attends(Protocol):
    """What `Model.forward` needs of a pass."""

    @property
    def tokens(self) -> Tensor:
        """``[1, rows]``."""
        ...

    @property
    def positions(self) -> Tensor:
        """``[1, rows]``."""
        ...

    @property
    def kept(self) -> Sequence[int]:
        """The rows whose logits are wanted."""
        ...

    def attend(self, query: Tensor, key: Tensor, value: Tensor, call: LayerCall) -> Tensor:
        """``[rows, query heads, value dim]``."""
        ...


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One attention layer: what it stores per token, its rotary kind (None: no positions)."""

    shape: LayerShape
    rope: str | None


@dataclass(frozen=True, slots=True)
class Proof:
    """How exactly a model passed the self-test.

    ``logits`` is the largest difference from stock eager attention (0 when that test was left out),
    ``keys`` that of turned keys from recomputed ones, relative to the largest key.
    """

    logits: float = 0.0
    keys: float = 0.0


class Model:
    """A transformers model proved fit for the engine; make one with `load_model`."""

    def __init__(
        self, hf: Any, config: EngineConfig, layers: Sequence[LayerSpec], rotary: Rotary
    ) -> None:
        self.proof = Proof()
        self.hf = hf
        self.config = config
        self.layers = tuple(layers)
        self.rotary = rotary
        text = hf.config.get_text_config()
        self.vocabulary: int = text.vocab_size
        self.max_positions: int = text.max_position_embeddings

    @classmethod
    def from_pretrained(cls, hf: Any, config: EngineConfig) -> Model:
        """A model around a transformers one that is already in memory.

        Raises `UnsupportedModel` with the reason when it cannot be run exactly.
        """
        from akv_rsi.engine.selftest import prove  # the proof runs models, so it imports this one

        hf.eval().requires_grad_(False)
        hf.to(getattr(torch, config.dtype))
        return prove(hf, config)

    @torch.inference_mode()
    def forward(self, batch: Attends) -> Tensor:
        """Logits ``[kept rows, vocabulary]`` in single precision of one pass."""

        def attend(
            module: nn.Module, query: Tensor, key: Tensor, value: Tensor, options: dict[str, Any]
        ) -> Tensor:
            call = layer_call(module, options, self.layers[module.layer_idx].rope)  # type: ignore[index]
            return batch.attend(query, key, value, call)

        keep = torch.tensor(batch.kept, dtype=torch.long)
        return run(self.hf, batch.tokens, batch.positions, keep, attend)


def run(hf: Any, tokens: Tensor, positions: Tensor, keep: Tensor, attend: RawCall) -> Tensor:
    """One forward pass of the transformers model, its attention done by ``attend``."""
    with _attended_by(attend):
        out = hf(input_ids=tokens, position_ids=positions, use_cache=False, logits_to_keep=keep)
    logits: Tensor = out.logits[0].float()
    return logits


def layer_call(module: nn.Module, options: dict[str, Any], rope: str | None) -> LayerCall:
    """The layer's call, from the options transformers passes; unknown ones are refused."""
    known = {"scaling", "sliding_window", "softcap", "s_aux"} | HARMLESS
    given = {name for name, value in options.items() if value is not None and value is not False}
    if unknown := given - known:
        raise UnsupportedModel(f"attention arguments {', '.join(sorted(unknown))}")
    return LayerCall(
        layer=int(module.layer_idx),  # type: ignore[arg-type]  # nn.Module attributes are untyped
        rope=rope,
        scale=float(options["scaling"]),
        window=options.get("sliding_window"),
        softcap=options.get("softcap"),
        sinks=options.get("s_aux"),
    )


def load_model(path: str | Path, config: EngineConfig) -> Model:
    """The model in a local directory (or of a hub id), in ``config.dtype``, proved at load.

    Raises `ModelLoadError` for missing, corrupt or incomplete files and `UnsupportedModel` for an
    architecture that cannot be run exactly.
    """
    import transformers
    from safetensors import SafetensorError

    local = Path(path).is_dir()
    if not local and (Path(path).exists() or str(path).startswith((".", "/", "~"))):
        raise ModelLoadError(f"{path} is not a model directory")
    bars = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.disable_progress_bar()
    try:
        hf, info = transformers.AutoModelForCausalLM.from_pretrained(
            str(path),
            dtype=getattr(torch, config.dtype),
            local_files_only=local,
            output_loading_info=True,
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelLoadError(f"cannot load {path}: {_first_line(error)}") from error
    finally:
        if bars:
            transformers.utils.logging.enable_progress_bar()
    broken = sorted(info["missing_keys"]) + sorted(key for key, *_ in info["mismatched_keys"])
    if broken:
        raise ModelLoadError(f"{path} lacks fitting weights for {', '.join(broken[:3])}")
    return Model.from_pretrained(hf, config)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
