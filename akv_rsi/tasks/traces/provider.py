"""Bills a trajectory under a provider's cache rules, call by call.

`cost.usages` charges an ideal cache: any prefix, for ever. Providers have a shortest prefix, whole
blocks, a life time that each use renews, and some find only prefixes that ended where an earlier
prompt did. Without such rules both agree exactly.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from pathlib import Path

from akv_rsi.config import from_mapping
from akv_rsi.errors import ConfigError
from akv_rsi.tasks.cost import (
    PRESETS,
    PriceModel,
    cache_end,
    charge,
    load_prices,
    prices_from,
    states,
)
from akv_rsi.tasks.traces.trace import Trace
from akv_rsi.types import Call, Usage
from akv_rsi.visibility import Applied, Visibility


@dataclass(frozen=True, slots=True)
class CacheRules:
    """What a provider's cache does.

    Prefixes below ``minimum`` tokens are not cached, others in whole ``block``s. An entry lives for
    ``ttl`` seconds after its last use. With ``entries`` a hit ends where an earlier prompt ended.
    ``storage`` is the price of keeping one token for an hour.
    """

    minimum: int = 0
    block: int = 1
    ttl: float = math.inf
    entries: bool = False
    storage: float = 0.0

    def __post_init__(self) -> None:
        if self.minimum < 0 or self.block < 1 or not self.ttl > 0 or not self.storage >= 0:
            raise ConfigError(f"cache rules cannot be used: {self}")


FREE = CacheRules()
# As published in 2025-26: Anthropic caches for 5 minutes what a breakpoint ends (agents put one at
# the end of each prompt); OpenAI for 5 to 10 minutes of idleness; DeepSeek for hours to days.
RULES: Mapping[str, CacheRules] = {
    "claude": CacheRules(minimum=1024, ttl=300.0, entries=True),
    "deepseek": CacheRules(minimum=64, block=64, ttl=86_400.0),
    "gpt": CacheRules(minimum=1024, block=128, ttl=600.0),
    "gpu": CacheRules(block=16),
}


@dataclass(frozen=True, slots=True)
class Bill:
    """What each call uses, and the token-hours that were kept cached between calls."""

    usages: tuple[Usage, ...]
    kept: float = 0.0

    @property
    def usage(self) -> Usage:
        """The sum over all calls."""
        return add_up(self.usages)

    def cost(self, tariff: Tariff) -> float:
        """Its price."""
        return tariff.prices.cost(self.usage) + tariff.rules.storage * self.kept

    def __add__(self, other: Bill) -> Bill:
        return Bill(self.usages + other.usages, self.kept + other.kept)


def add_up(usages: Sequence[Usage]) -> Usage:
    """The sum of ``usages``; quick, for there can be a hundred thousand."""
    names = (f.name for f in fields(Usage))
    return Usage(*(sum(map(attrgetter(name), usages)) for name in names))


@dataclass(frozen=True, slots=True)
class Tariff:
    """Prices and the cache rules they come with."""

    prices: PriceModel
    rules: CacheRules = field(default_factory=CacheRules)


def load_tariff(source: str) -> Tariff:
    """A preset by name, or a JSON file of prices with optional rules under ``cache``.

    `ConfigError` when it is neither.
    """
    if source in PRESETS:
        return Tariff(PRESETS[source], RULES[source])
    path = Path(source)
    try:
        values = json.loads(path.read_text(encoding="utf-8")) if path.suffix == ".json" else None
    except (OSError, ValueError) as error:
        raise ConfigError(f"prices cannot be read from {source}: {error}") from error
    if not isinstance(values, dict) or "cache" not in values:
        return Tariff(load_prices(source))
    rules = values.pop("cache")
    if not isinstance(rules, dict):
        raise ConfigError(f"'cache' in {source} must hold an object of rules")
    return Tariff(prices_from(values, path.stem), from_mapping(CacheRules, rules))


def asked_of(tariff: Tariff, trace: Trace) -> Tariff:
    """The tariff with the cache's life time that the trace itself asked for, if it says so."""
    asked = {s.ttl for c in trace.contexts for s in c.steps if s.ttl is not None}
    if not asked or tariff.rules.ttl == math.inf:
        return tariff
    return replace(tariff, rules=replace(tariff.rules, ttl=max(asked)))


class _Cache:
    """What a provider still holds of one conversation's prefix."""

    def __init__(self, rules: CacheRules, warm: int, since: float | None) -> None:
        self._rules = rules
        self._used = since
        self.end = self._whole(warm)
        self._ends = [self.end] if self.end else []
        self.kept = 0.0

    def reach(self, reused: int, now: float | None) -> int:
        """How many of the ``reused`` leading tokens it holds at this time."""
        if now is not None and self._used is not None:
            idle = max(0.0, now - self._used)
            self.kept += self.end * min(idle, self._rules.ttl) / 3600
            if idle > self._rules.ttl:
                self.end, self._ends = 0, []
        hit = min(self.end, reused)
        if self._rules.entries and hit < self.end:
            # Edits cut the prefix: only what ended at or before the cut is found.
            found = bisect_right(self._ends, hit)
            hit = self._ends[found - 1] if found else 0
        return self._whole(hit)

    def hold(self, reused: int, end: int, now: float | None) -> None:
        """After a call: the prefix up to ``end`` is held; beyond ``reused`` it is new."""
        while self._ends and self._ends[-1] > reused:
            self._ends.pop()
        self.end = self._whole(end)
        if self.end:
            self._ends.append(self.end)
        self._used = now if now is not None else self._used

    def _whole(self, tokens: int) -> int:
        blocks = tokens - tokens % self._rules.block
        return blocks if blocks >= max(1, self._rules.minimum) else 0


def bill(
    calls: Sequence[Call],
    tariff: Tariff,
    times: Sequence[float | None] = (),
    extra: Sequence[int] = (),
    warm: int = 0,
    since: float | None = None,
    seen: Sequence[Applied] = (),
) -> Bill:
    """What each of ``calls`` uses under ``tariff``; see `Modelled` for the other arguments.

    ``times`` and ``extra`` have one entry for each call that is not auxiliary; an auxiliary call
    happens when the next other one does. ``seen`` is what `states` would tell, where it is known.
    """
    cache = _Cache(tariff.rules, warm, since)
    usages: list[Usage] = []
    number = 0
    if not seen:
        # Recordings know no ops, and there can be a hundred thousand calls of them.
        has_ops = any(call.ops for call in calls)
        seen = [*states(calls)] if has_ops else [Applied(Visibility(), ())] * len(calls)
    for call, applied in zip(calls, seen, strict=True):
        if number == 0 and not call.auxiliary and call.reused < warm:
            call = replace(call, reused=warm)
        now = times[number] if number < len(times) else None
        usage = _usage(call, cache.reach(call.reused, now), applied)
        more = extra[number] if extra and not call.auxiliary else 0
        if more or call.prompt < tariff.rules.minimum:
            u, written = usage, usage.written if call.prompt >= tariff.rules.minimum else 0
            usage = Usage(1, u.uncached, u.cached, written, u.output + more, u.refreshed)
        if not call.auxiliary:
            cache.hold(call.reused, cache_end(call, tariff.prices), now)
            number += 1
        usages.append(usage)
    return Bill(tuple(usages), cache.kept)


def _usage(call: Call, hit: int, applied: Applied) -> Usage:
    """What a call uses of which ``hit`` leading tokens are cached; before any op it sees all."""
    if applied.visibility.past:
        return charge(call, hit, applied)
    fresh = call.prompt - hit
    return Usage(1, fresh, hit, 0 if call.auxiliary else fresh, call.output)
