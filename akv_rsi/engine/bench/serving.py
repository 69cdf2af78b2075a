"""Serving on a GPU: an 8B-shaped model with random bf16 weights, alone on its card.

``python -m akv_rsi.engine.bench.serving`` prints the figures as JSON; it needs what the engine
needs. Graphs are captured and kernels compiled before anything counts: each part runs twice.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from akv_rsi.config import EngineConfig
from akv_rsi.engine.bench.shape import LLAMA_8B, random_llama
from akv_rsi.engine.bench.trajectory import POLICIES, Turns, ids, play
from akv_rsi.engine.engine import Engine
from akv_rsi.engine.model import Model
from akv_rsi.engine.pool import Ints
from akv_rsi.engine.request import Completion, Request
from akv_rsi.types import Drop, OpHistory, Refresh, Repos

# Keys and values of a token: 32 layers, 8 heads of 128 dimensions, 2 bytes each.
TOKEN_BYTES = 2 * 32 * 8 * 128 * 2
BATCH, CONTEXT, LONG = 32, 8192, 32768
# Where a trim cuts: in the first quarter of the context.
CUT = 4096


def bench_serving(seed: int = 0, say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """All figures; ``say`` is told what is measured next."""
    from akv_rsi.kernels.bench.measure import ceilings, machine

    say("ceilings")
    limits = ceilings()
    say("model")
    engine, weights = make_engine(seed)
    random = np.random.default_rng(seed)
    say(f"decode {BATCH} x {CONTEXT}")
    found = {
        "machine": machine(),
        "seed": seed,
        "ceilings": limits,
        "decode": _decode(engine, random, weights, limits["copy_bytes_per_s"]),
    }
    say("edits")
    engine.reset()
    found["edits"] = _edits(engine, random)
    found["trajectory"] = {}
    turns = Turns.drawn(random, LLAMA_8B["vocab_size"])
    for name, policy in POLICIES.items():
        say(f"trajectory: {name}")
        for _ in range(2):
            engine.reset()
            latencies = play(turns, policy, lambda request: timed(engine, request))
        found["trajectory"][name] = latencies
    return found


def make_engine(seed: int) -> tuple[Engine, int]:
    """The engine, and the bytes of weights that each step reads."""
    config = EngineConfig(
        device="cuda",
        dtype="bfloat16",
        pages=24576,
        max_batch=BATCH,
        chunk_tokens=8192,
        self_test=False,
    )
    hf = random_llama(LLAMA_8B, config, seed)
    named = hf.named_parameters()
    weights = sum(p.numel() * p.element_size() for name, p in named if "embed_tokens" not in name)
    return Engine(Model.from_pretrained(hf, config), config), weights


def timed(engine: Engine, request: Request) -> tuple[Completion, list[float]]:
    """A request that runs alone, and the seconds of its decode steps."""
    number = engine.submit(request)
    steps = []
    while True:
        start = time.perf_counter()
        outcomes = dict(engine.step())
        steps.append(time.perf_counter() - start)
        if number in outcomes:
            outcome = outcomes[number]
            assert isinstance(outcome, Completion)
            return outcome, steps[len(steps) - len(outcome.tokens) + 1 :]


def _decode(
    engine: Engine, random: np.random.Generator, weights: int, copy: float
) -> dict[str, float]:
    prompts = random.integers(0, LLAMA_8B["vocab_size"], (BATCH, CONTEXT))
    for new in (8, 64):
        steps = _together(engine, [Request(ids(prompt), max_new_tokens=new) for prompt in prompts])
    median = float(np.median(steps[-48:]))
    read = weights + TOKEN_BYTES * BATCH * (CONTEXT + 32)
    return {
        "step_ms": median * 1e3,
        "tokens_per_s": BATCH / median,
        "bytes": read,
        "share_of_roofline": read / copy / median,
    }


def _together(engine: Engine, requests: Sequence[Request]) -> list[float]:
    """The seconds of all steps in which ``requests`` run side by side."""
    for request in requests:
        engine.submit(request)
    done, steps = 0, []
    while done < len(requests):
        start = time.perf_counter()
        done += len(engine.step())
        steps.append(time.perf_counter() - start)
    return steps


def _edits(engine: Engine, random: np.random.Generator) -> dict[str, float]:
    """Times to the next token at 32k, medians of fresh edits of one cached context.

    The last token of a call is computed along with the next call: not with one that is timed.
    """
    tokens: Ints = random.integers(0, LLAMA_8B["vocab_size"], LONG)
    completion, _ = timed(engine, Request(ids(tokens), max_new_tokens=16))
    found = {"first_prefill": [completion.ttft]}
    for shift in range(6):
        for name, request in _variants(tokens, shift).items():
            timed(engine, Request(ids(tokens[:1]), max_new_tokens=1))
            completion, steps = timed(engine, request)
            found.setdefault(name, []).append(completion.ttft)
            found.setdefault("step", []).extend(steps)
    # The first of each kind compiles and captures.
    medians = {name: np.median(values[1:] or values) for name, values in found.items()}
    times = {f"{name}_ms": float(median) * 1e3 for name, median in medians.items()}
    times["trim_over_drop"] = times["trim_ms"] / times["drop_ms"]
    times["drop_over_repeat"] = times["drop_ms"] / times["repeat_ms"]
    times["drop_over_step"] = times["drop_ms"] / times["step_ms"]
    return times


def _variants(tokens: Ints, shift: int) -> dict[str, Request]:
    """The same edit in several ways: half of the context goes, beginning at `CUT`.

    Ops happen before the last token, whose logits are the first to be under them.
    """
    start, end, new = CUT + shift, CUT + shift + LONG // 2, 8
    drop = Drop(LONG - 1, ((start, end),))
    survivors = LONG - LONG // 2
    refresh = Refresh(LONG - 1, ((end, end + survivors // 10),))

    def edited(*ops: Any) -> Request:
        return Request(ids(tokens), OpHistory(ops), max_new_tokens=new)

    return {
        "repeat": edited(),
        "drop": edited(drop),
        "drop_repos": edited(drop, Repos(LONG - 1)),
        "drop_refresh": edited(drop, refresh),
        "trim": Request(ids(np.delete(tokens, slice(start, end))), max_new_tokens=new),
    }


if __name__ == "__main__":
    print(json.dumps(bench_serving(say=lambda line: print(line, file=sys.stderr)), indent=2))
