"""What a search would take, before it is begun: `search --dry-run`."""

from __future__ import annotations

import math
from typing import Any

from akv_rsi.search.config import SearchConfig

RATE = 5.0  # episodes a second: the reference agent on two cores
ARMS = 3


def estimate(config: SearchConfig) -> dict[str, Any]:
    """Evaluations, seconds, LLM calls, tokens and dollars, at most; nothing is spent to tell.

    Calls are those of first drafts, one try each; ``usd`` is what they cost if every answer is as
    long as it may be. ``affordable`` counts the proposals that the money buys at the very worst.
    """
    opening = config.train + config.rungs[0]
    evaluations = opening + ARMS * config.episodes + config.closing
    evaluations = min(evaluations, config.max_evals or evaluations)
    least = (config.opening + config.closing) / RATE  # a search stops after a round, not within
    allowed = config.max_time or math.inf
    seconds = min(evaluations / RATE, max(allowed, least))
    about: dict[str, Any] = {"evaluations": evaluations, "seconds": seconds, "rate": RATE}
    asking: dict[str, Any] = _asking(config) if config.llm else {"usd": 0.0, "warnings": []}
    if allowed < least and not config.traces:
        short = f"warning: one round and the end may take {least:.0f} s, more than --max-time"
        asking["warnings"] = [short, *asking["warnings"]]
    return about | asking


def _asking(config: SearchConfig) -> dict[str, Any]:
    """What asking models takes. The client takes a second to import: only who asks pays for it."""
    from akv_rsi.search.llm.connect import ENOUGH, connect, warning
    from akv_rsi.search.llm.endpoint import Limits
    from akv_rsi.search.llm.endpoint import estimate as tokens_of
    from akv_rsi.search.llm.exchange import CONCURRENCY, USUAL

    exchange = connect(config)
    searching = config.episodes - config.finalists * config.validation
    calls = CONCURRENCY * max(1, searching // (config.width * config.rungs[0]))
    tokens_in, tokens_out = calls * tokens_of(USUAL), calls * Limits().tokens
    dear = max(e.model.dollars(tokens_in, tokens_out) for e in exchange.endpoints.values())
    usd = dear if config.max_usd is None else min(dear, config.max_usd)
    affordable = exchange.proposals
    warnings = [warning(affordable)] if affordable < ENOUGH else []
    about = {"llm_calls": calls, "llm_tokens": tokens_in + tokens_out, "usd": usd}
    return about | {"affordable": min(affordable, calls), "warnings": warnings}
