"""Where the time of a pass goes. The engine carries no clock: it is wrapped for the measurement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from akv_rsi.engine.attention import Segment
from akv_rsi.engine.batch import Batch
from akv_rsi.engine.bench.shape import random_tokens
from akv_rsi.engine.dense import DenseGroup
from akv_rsi.engine.engine import Engine
from akv_rsi.engine.model import Model
from akv_rsi.engine.request import Request

STEPS = 24
PARTS: dict[str, tuple[type, str]] = {
    "forward": (Model, "forward"),
    "attend": (Batch, "attend"),
    "gather": (Segment, "_gather"),
    "seat": (DenseGroup, "_layer"),
}


def where_the_time_goes(engine: Engine, context: int, batch: int, seed: int) -> dict[str, Any]:
    """Milliseconds per pass of prefill and of decode: model, attention, gather, Python.

    ``gather`` is what collects keys and values from the pages (and seats them in the dense set);
    ``attention`` is the rest of attention, ``model`` all else in the forward pass, ``python`` what
    is outside of it: planning, sampling, the tree.
    """
    for i in range(batch):
        engine.submit(Request(random_tokens(context, seed + i), max_new_tokens=STEPS))
    with _clock() as spent:
        started = perf_counter()
        passes = 0
        while engine.stats().rows < batch * context:
            engine.step()
            passes += 1
        prefill = _split(spent, perf_counter() - started, passes)
        spent.clear()
        started, passes = perf_counter(), 0
        while engine.stats().requests < batch:
            engine.step()
            passes += 1
        return {"prefill": prefill, "decode": _split(spent, perf_counter() - started, passes)}


def _split(spent: Counter[str], total: float, passes: int) -> dict[str, float]:
    gather = spent["gather"] + spent["seat"]
    parts = {
        "model": spent["forward"] - spent["attend"],
        "attention": spent["attend"] - gather,
        "gather": gather,
        "python": total - spent["forward"],
        "all": total,
    }
    return {name: round(1e3 * seconds / passes, 3) for name, seconds in parts.items()}


@contextmanager
def _clock() -> Iterator[Counter[str]]:
    """Counts the seconds spent in each of `PARTS`."""
    spent: Counter[str] = Counter()
    before = {name: getattr(owner, method) for name, (owner, method) in PARTS.items()}
    for name, (owner, method) in PARTS.items():
        setattr(owner, method, _timed(before[name], name, spent))
    try:
        yield spent
    finally:
        for name, (owner, method) in PARTS.items():
            setattr(owner, method, before[name])


def _timed(function: Callable[..., Any], name: str, spent: Counter[str]) -> Callable[..., Any]:
    def timed(*args: Any) -> Any:
        started = perf_counter()
        out = function(*args)
        spent[name] += perf_counter() - started  # type: ignore[assignment]  # a Counter of seconds
        return out

    return timed
