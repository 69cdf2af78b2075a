"""The independent oracle: stock transformers, a stock cache, an explicit mask, segment by segment.

Imports nothing of akv_rsi. The cache of every layer is rebuilt before each pass from raw rows: keys
as the projection (and its norm) gives them, before any rotation, rotated here at the absolute
position the queries of that pass see them at. Dropping is a bit of the mask; a refresh overwrites
rows. Whatever the engine does with pages, deltas and trees, it must give these logits.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from .book import Book, Op, groups, members


class Oracle:
    """One sequence on ``model``, a transformers causal LM with eager attention in fp32.

    The methods `position`, `sees` and `overwrite` are the three things an engine can get wrong;
    tests override them to plant a fault.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.layers: list[Any] = [layer.self_attn for layer in model.model.layers]
        self.tokens: list[int] = []
        self.book = Book()
        # Per layer: raw keys and values, [kv_heads, n, head_dim]; None before the first token.
        self.keys: list[Tensor | None] = [None] * len(self.layers)
        self.values: list[Tensor | None] = [None] * len(self.layers)

    def run(self, tokens: Sequence[int], history: Sequence[Op] = ()) -> Tensor:
        """Logits of all ``tokens`` under ``history``, fp32 [n, vocab]. Only on a new oracle."""
        logits, done = [], 0
        for boundary, ops in groups(history):
            if boundary > done:
                logits.append(self.append(tokens[done:boundary]))
            self.apply(ops)
            done = boundary
        if done < len(tokens):
            logits.append(self.append(tokens[done:]))
        return torch.cat(logits)

    def append(self, tokens: Sequence[int]) -> Tensor:
        """Computes the next tokens; returns their logits [len(tokens), vocab]."""
        first = self.book.length
        self.tokens += tokens
        self.book.append(len(tokens))
        logits, keys, values = self._forward(list(range(first, self.book.length)))
        for layer in range(len(self.layers)):
            self.keys[layer] = _joined(self.keys[layer], keys[layer])
            self.values[layer] = _joined(self.values[layer], values[layer])
        return logits

    def apply(self, ops: Sequence[Op]) -> None:
        """Applies the ops of one boundary.

        Every token a refresh names is recomputed, changed or not: where nothing changed, the rows
        come out as they were.
        """
        self.book.apply(ops)
        for op in ops:
            if op[0] == "refresh":
                chosen = members(op[2])
                _, keys, values = self._forward(chosen)
                self.overwrite(chosen, keys, values)

    def overwrite(self, chosen: list[int], keys: list[Tensor], values: list[Tensor]) -> None:
        """Replaces the rows of ``chosen`` tokens."""
        for layer in range(len(self.layers)):
            self.keys[layer][:, chosen] = keys[layer]  # type: ignore[index]
            self.values[layer][:, chosen] = values[layer]  # type: ignore[index]

    def position(self, token: int) -> int:
        """Where queries see ``token``; of no matter (0) while it has no place."""
        return self.book.position[token] or 0

    def sees(self, query: int, token: int) -> bool:
        """Whether ``query`` may attend to ``token``, windows apart."""
        return token <= query and self.book.visible[token]

    @torch.no_grad()
    def _forward(self, chosen: list[int]) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """One pass over ``chosen`` tokens at their present positions, over the rows of all others.

        Rows of chosen tokens that already exist are stale: they stay in the cache, masked, and the
        pass sees the rows it appends instead. Returns logits and, per layer, new raw keys and
        values.
        """
        rows = 0 if self.keys[0] is None else self.keys[0].shape[1]
        columns = list(range(rows)) + chosen
        stale = set(chosen) & set(range(rows))
        allowed = torch.tensor(
            [
                [self.sees(q, k) and not (c < rows and k in stale) for c, k in enumerate(columns)]
                for q in chosen
            ]
        )
        cache = DynamicCache()
        for layer in range(len(self.layers) if rows else 0):
            cache.update(self._rotated(layer)[None], self.values[layer][None], layer)  # type: ignore[index]
        with _Taps(
            self.layers, [self._mask(m, allowed, chosen, columns) for m in self.layers]
        ) as taps:
            out = self.model(
                input_ids=torch.tensor([[self.tokens[i] for i in chosen]]),
                position_ids=torch.tensor([[self.position(i) for i in chosen]]),
                attention_mask=torch.zeros(1, 1, len(chosen), len(columns)),
                use_cache=True,
                **{_cache_name(self.model): cache},
            )
        new_values = [layer.values[0, :, rows:] for layer in cache.layers]
        return out.logits[0].float(), taps.keys(), new_values

    def _rotated(self, layer: int) -> Tensor:
        """The layer's cached keys at their absolute positions, [kv_heads, n, head_dim]."""
        attention, keys = self.layers[layer], self.keys[layer]
        assert keys is not None
        if not getattr(attention, "use_rope", True):  # a layer without rotary positions
            return keys
        rotary = self.model.model.rotary_emb
        positions = torch.tensor([[self.position(i) for i in range(keys.shape[1])]])
        typed = "layer_type" in inspect.signature(rotary.forward).parameters
        cos, sin = rotary(keys, positions, *([attention.layer_type] if typed else []))
        turn = sys.modules[type(attention).__module__].apply_rotary_pos_emb
        return turn(keys[None], keys[None], cos, sin)[1][0]  # type: ignore[no-any-return]

    def _mask(
        self, attention: Any, allowed: Tensor, chosen: list[int], columns: list[int]
    ) -> Tensor:
        """The additive mask of one layer, [1, 1, queries, columns]: ``allowed`` and its window."""
        window = window_of(attention)
        if window is not None:
            query = torch.tensor([self.position(i) for i in chosen])
            key = torch.tensor([self.position(i) for i in columns])
            allowed = allowed & (query[:, None] - key[None, :] < window)
        low = torch.finfo(torch.float32).min
        return torch.zeros(allowed.shape).masked_fill(~allowed, low)[None, None]


def window_of(attention: Any) -> int | None:
    """The sliding window of an attention module in tokens, the query's own included."""
    if hasattr(attention, "sliding_window"):
        return attention.sliding_window  # type: ignore[no-any-return]
    return getattr(attention.config, "sliding_window", None)


class _Taps:
    """While open: hands each layer its mask, and catches what its key projection gives."""

    def __init__(self, layers: list[Any], masks: list[Tensor]) -> None:
        self._layers, self._masks = layers, masks
        self._caught: list[Tensor] = [torch.empty(0)] * len(layers)
        self._handles: list[Any] = []

    def __enter__(self) -> _Taps:
        for index, (layer, mask) in enumerate(zip(self._layers, self._masks, strict=True)):

            def give(_m: Any, args: Any, kwargs: Any, mask: Tensor = mask) -> tuple[Any, Any]:
                return args, {**kwargs, "attention_mask": mask}

            def catch(_m: Any, _args: Any, output: Tensor, index: int = index) -> None:
                self._caught[index] = output[0].clone()

            projection = layer.qkv_proj if hasattr(layer, "qkv_proj") else layer.k_proj
            self._handles.append(layer.register_forward_pre_hook(give, with_kwargs=True))
            self._handles.append(projection.register_forward_hook(catch))
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def keys(self) -> list[Tensor]:
        """Per layer, the pre-rotary keys of the pass, [kv_heads, n, head_dim]."""
        return [_pre_rotary(m, out) for m, out in zip(self._layers, self._caught, strict=True)]


def _pre_rotary(attention: Any, projected: Tensor) -> Tensor:
    """What the layer rotates: its projection's keys, normalised where the architecture does."""
    config, size = attention.config, attention.head_dim
    heads = config.num_key_value_heads
    if hasattr(attention, "qkv_proj"):  # Phi3: queries, keys and values in one projection
        first = config.num_attention_heads * size
        projected = projected[:, first : first + heads * size]
    norm = getattr(attention, "k_norm", None)
    if norm is not None and norm.weight.shape[0] != size:  # OLMo2: all heads as one vector
        projected, norm = norm(projected), None
    keys = projected.view(len(projected), heads, size)
    return (keys if norm is None else norm(keys)).transpose(0, 1)


def _joined(old: Tensor | None, new: Tensor) -> Tensor:
    return new if old is None else torch.cat([old, new], dim=1)


def _cache_name(model: Any) -> str:
    """What this transformers release calls the cache argument."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
