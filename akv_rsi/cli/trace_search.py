"""What `akv-rsi search --traces` searches on: recorded conversations instead of tasks."""

from __future__ import annotations

from typing import Any

from akv_rsi.errors import ConfigError
from akv_rsi.search.config import SearchConfig, sizes_for
from akv_rsi.tasks.traces.corpus import Corpus, load_corpus
from akv_rsi.tasks.traces.evaluator import TraceEvaluator
from akv_rsi.tasks.traces.objective import Risk
from akv_rsi.tasks.traces.provider import load_tariff
from akv_rsi.tasks.traces.replays import Setting

NO_MODEL = "none"
# Of each conversation, calls are replayed until the segments they have add up to this.
WORK = 12_000


def asked_on_traces(traces: tuple[str, ...], prices: str, seed: int, quick: bool) -> dict[str, Any]:
    """The part of a search's configuration that depends on the transcripts."""
    corpus = load_corpus(traces, load_tariff(prices), WORK, seed)
    counts = {split: len(items) for split, items in corpus.splits.items()}
    deal = ", ".join(f"{count} {split}" for split, count in counts.items())
    return {
        "traces": traces,
        "suites": (corpus.name,),
        "model": NO_MODEL,
        "found_on": f"{corpus.about}; split by conversation: {deal}; risk-weighted, no model",
        **sizes_for(counts["train"], counts["validation"], counts["test"], quick),
    }


def trace_evaluator(config: SearchConfig, workers: int) -> TraceEvaluator:
    """The evaluator of a search on transcripts; `ConfigError` if they are others by now."""
    tariff = load_tariff(config.prices)
    corpus: Corpus = load_corpus(config.traces, tariff, WORK, config.seed)
    if corpus.name not in config.suites:
        raise ConfigError(
            f"the transcripts in {', '.join(config.traces)} are not those this run began on; "
            "start a new run"
        )
    setting = Setting(tariff.prices, config.span, budget=config.budget)
    return TraceEvaluator(corpus, Risk(), setting, workers)
