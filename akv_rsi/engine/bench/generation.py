"""Decode and prefill against transformers' own ``generate`` with its static cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import torch

from akv_rsi.engine.bench.arms import milliseconds, ratio, take_turns
from akv_rsi.engine.bench.shape import Pair, random_tokens
from akv_rsi.engine.request import Request

CONTEXT = 512
NEW_TOKENS = 24
PREFILL = 1024


def decode(pair: Pair, batch: int, seed: int) -> dict[str, Any]:
    """The speed of decoding ``batch`` sequences, as a multiple of transformers'.

    The two take turns token by token: whenever ``generate`` has made one, the engine makes one.
    """
    prompts = [random_tokens(CONTEXT, seed + i) for i in range(batch)]
    engine = pair.engine
    engine.reset()
    for prompt in prompts:
        engine.submit(Request(prompt, max_new_tokens=2 * NEW_TOKENS))
    while engine.stats().rows < batch * CONTEXT:
        engine.step()
    engine.step()  # seats the sequences
    ours: list[float] = []
    theirs: list[float] = []
    left = perf_counter()

    def turn() -> None:
        nonlocal left
        theirs.append(perf_counter() - left)
        started = perf_counter()
        engine.step()
        left = perf_counter()
        ours.append(left - started)

    _generate(pair.stock, prompts, NEW_TOKENS, turn)
    # Their first turn was the prefill, the one after it allocates.
    return _compared(ours[2:], theirs[2:])


def prefill(pair: Pair, rounds: int, seed: int) -> dict[str, Any]:
    """The speed of one prompt's prefill, as a multiple of transformers'."""
    prompt = random_tokens(PREFILL, seed)

    def engine() -> float:
        pair.engine.reset()
        started = perf_counter()
        pair.engine.generate([Request(prompt, max_new_tokens=1)])
        return perf_counter() - started

    def stock() -> float:
        started = perf_counter()
        _generate(pair.stock, [prompt], 1, lambda: None)
        return perf_counter() - started

    seconds = take_turns({"engine": engine, "transformers": stock}, rounds)
    return _compared(seconds["engine"], seconds["transformers"])


def _compared(ours: list[float], theirs: list[float]) -> dict[str, Any]:
    times = {"engine_ms": milliseconds(ours), "transformers_ms": milliseconds(theirs)}
    return ratio(theirs, ours) | times


@torch.inference_mode()
def _generate(
    model: Any, prompts: Sequence[Sequence[int]], new_tokens: int, turn: Callable[[], None]
) -> None:
    """Has ``model`` generate, and calls ``turn`` after each token."""

    def note(tokens: torch.Tensor, _: Any, **__: Any) -> torch.Tensor:
        turn()
        return torch.zeros(len(tokens), dtype=torch.bool)

    tokens = torch.tensor(prompts)
    model.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=new_tokens,
        do_sample=False,
        cache_implementation="static",
        stopping_criteria=[note],
    )
