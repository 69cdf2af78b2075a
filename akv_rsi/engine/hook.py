"""How our attention gets into a transformers model: one registered function, one context variable.

The model's code stays its own. In a forward pass the registered function hands queries, keys and
values to whoever attends in that pass; everything else about a layer is the model's business.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from akv_rsi.engine.attention import LayerCall
from akv_rsi.engine.pool import LayerShape
from akv_rsi.errors import UnsupportedModel

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
    def kept_rows(self) -> Tensor:
        """The rows whose logits are wanted."""
        ...

    def attend(self, query: Tensor, key: Tensor, value: Tensor, call: LayerCall) -> Tensor:
        """``[rows, query heads, value dim]``."""
        ...


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One attention layer: what it stores per token, its rotary kind (None: no positions).

    ``window`` counts positions; None for a layer that sees all of them.
    """

    shape: LayerShape
    rope: str | None
    window: int | None = None


def register(hf: Any) -> None:
    """Makes ``hf`` attend through us."""
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, attention)
    exchange(hf, ATTENTION)


def exchange(hf: Any, implementation: str) -> None:
    """Sets the model's attention; `UnsupportedModel` when it will not have it."""
    hf.set_attn_implementation(implementation)
    if hf.config.get_text_config()._attn_implementation != implementation:
        raise UnsupportedModel("its attention is not exchangeable")


def forward(hf: Any, layers: Sequence[LayerSpec], batch: Attends) -> Tensor:
    """Logits ``[kept rows, vocabulary]`` in single precision of one pass."""

    def attend(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, options: dict[str, Any]
    ) -> Tensor:
        rope = layers[int(module.layer_idx)].rope  # type: ignore[arg-type]  # untyped attribute
        return batch.attend(query, key, value, layer_call(module, options, rope))

    return run(hf, batch.tokens, batch.positions, batch.kept_rows, attend)


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
