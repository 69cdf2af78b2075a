"""What a trajectory costs: prices, and the cache they are charged under.

Cost is a pure function of one `Trajectory` and a `PriceModel`. The price model has a cache of its
own: private to the conversation, cold at its start, unlimited. So a cost never depends on run
order, on what else ran, or on evictions; the engine's counters are reported apart (`Measured`).

One call is charged like this. Of the leading ``reused`` tokens, which the previous call left, those
inside the cache and visible after the call's ops are **cached** reads. Everything behind the
cache's end, everything behind an edit of the text and, besides, what a Refresh recomputes are
**uncached** input; all of it is **written** too, except by an auxiliary call, whose prompt nobody
reads again. Whether a call's **output** stays in the cache is the price model's choice: most APIs
cache prompts only, so an answer comes back as input of the next call and is written then; engines
keep it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from akv_rsi.config import from_mapping
from akv_rsi.errors import ConfigError
from akv_rsi.types import Call, Op, OpHistory, Range, Trajectory, Usage
from akv_rsi.visibility import Applied, Visibility


@dataclass(frozen=True, slots=True)
class PriceModel:
    """Prices of one token, in any one unit: ratios are all that is compared.

    ``input`` is paid for an uncached token, ``write`` *instead* for one that is also added to the
    cache, ``read`` for a cached token attended to, once per call, and ``output`` for a sampled one.
    ``caches_output`` says whether answers stay in the cache.
    """

    name: str
    read: float
    write: float
    output: float
    input: float = 1.0
    caches_output: bool = False

    def __post_init__(self) -> None:
        for key in ("input", "read", "write", "output"):
            price = getattr(self, key)
            if isinstance(price, bool) or not isinstance(price, int | float):
                raise ConfigError(f"price {key!r} of {self.name!r} must be a number, not {price!r}")
            if not (math.isfinite(price) and price >= 0):
                raise ConfigError(f"price {key!r} of {self.name!r} must be finite and not negative")
        if self.input + self.write + self.output <= 0:
            raise ConfigError(f"prices {self.name!r} charge nothing for input, write or output")
        if not isinstance(self.caches_output, bool):
            raise ConfigError(f"caches_output of {self.name!r} must be true or false")

    def cost(self, usage: Usage) -> float:
        """The price of ``usage``."""
        return (
            self.input * (usage.uncached - usage.written)
            + self.write * usage.written
            + self.read * usage.cached
            + self.output * usage.output
        )

    def kv_read_share(self, usage: Usage) -> float:
        """The share of the cost of ``usage`` that is paid for reading the cache, 0 to 1."""
        cost = self.cost(usage)
        return self.read * usage.cached / cost if cost else 0.0


PRESETS: Mapping[str, PriceModel] = {
    prices.name: prices
    for prices in (
        PriceModel("claude", read=0.1, write=1.25, output=5.0),
        # Published list prices, relative to a cache miss; its cache persists the end of an answer.
        PriceModel("deepseek", read=0.1, write=1.0, output=1.5, caches_output=True),
        PriceModel("gpt", read=0.1, write=1.0, output=8.0),
        # Seconds of one H200 for an 8B model in bf16 with 8 KV heads, batches of 32: 16 GFLOP a
        # token at 450 TFLOP/s; 131 kB a token at 4.2 TB/s, re-read for each of 100 output tokens;
        # 16 GB of weights a step at 4.2 TB/s over 32 sequences.
        PriceModel(
            "gpu", input=3.6e-5, read=3.1e-6, write=3.6e-5, output=1.2e-4, caches_output=True
        ),
    )
}


def prices_from(values: Mapping[str, Any], name: str = "custom") -> PriceModel:
    """User prices from a mapping: ``read``, ``write``, ``output``; optionally the other fields.

    >>> prices_from({"read": 0.5, "write": 5, "output": 25, "input": 5}).cost(Usage(1, 10, 4, 10))
    52.0
    """
    try:
        return from_mapping(PriceModel, {"name": name, **values})
    except TypeError as error:  # from the constructor: a required key is missing
        raise ConfigError(f"prices need the keys read, write and output: {error}") from error


def load_prices(source: str) -> PriceModel:
    """A preset by name, or a JSON file of user prices; `ConfigError` when it is neither."""
    if source in PRESETS:
        return PRESETS[source]
    path = Path(source)
    if path.suffix != ".json":
        known = ", ".join(PRESETS)
        raise ConfigError(f"unknown prices {source!r}: use {known}, or a .json file of your own")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"prices cannot be read from {source}: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{source} must hold one JSON object of prices")
    return prices_from(values, path.stem)


def charge(call: Call, cache_end: int, applied: Applied) -> Usage:
    """What one call uses, given how far the cache reached before it and the state after its ops."""
    hit = min(call.reused, cache_end)
    refreshed = _overlap(applied.refreshed, call.reused)
    uncached = call.prompt - hit + refreshed
    return Usage(
        calls=1,
        uncached=uncached,
        cached=_overlap(applied.visibility.visible_ranges, hit) - _overlap(applied.refreshed, hit),
        written=0 if call.auxiliary else uncached,
        output=call.output,
        refreshed=refreshed,
    )


def cache_end(call: Call, prices: PriceModel) -> int:
    """How many leading tokens of the conversation are cached after ``call``."""
    return call.prompt + (call.output if prices.caches_output else 0)


def states(calls: Iterable[Call]) -> Iterator[Applied]:
    """What each call sees after its ops, in order, and what of it a Refresh recomputes."""
    state = Visibility()
    history: list[Op] = []
    for call in calls:
        if call.reused < state.length and not call.auxiliary:
            # The text was edited: ops behind the kept tokens went with it.
            history = [op for op in history if op.boundary <= call.reused]
            state = Visibility.replay(call.reused, OpHistory(tuple(history)))
        applied = state.apply(call.ops)
        yield applied
        if not call.auxiliary:
            history.extend(call.ops)
            state = applied.visibility.append(call.prompt + call.output - call.reused)


def usages(trajectory: Trajectory, prices: PriceModel) -> Iterator[Usage]:
    """What each call of the trajectory uses, in order."""
    end = 0
    for call, applied in zip(trajectory.calls, states(trajectory.calls), strict=True):
        yield charge(call, end, applied)
        if not call.auxiliary:
            end = cache_end(call, prices)


def usage_of(trajectory: Trajectory, prices: PriceModel) -> Usage:
    """What the whole trajectory uses."""
    return sum(usages(trajectory, prices), Usage())


def cost_of(trajectory: Trajectory, prices: PriceModel) -> float:
    """What the whole trajectory costs."""
    return prices.cost(usage_of(trajectory, prices))


def _overlap(ranges: tuple[Range, ...], end: int) -> int:
    """Tokens of ascending ``ranges`` that lie before ``end``."""
    return sum(min(high, end) - low for low, high in ranges if low < end)
