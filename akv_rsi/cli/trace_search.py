"""What `akv-rsi search --traces` searches on: recorded conversations instead of tasks."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from rich.console import Console

from akv_rsi.config import EngineConfig
from akv_rsi.errors import ConfigError
from akv_rsi.search.config import SearchConfig, sizes_for
from akv_rsi.tasks.load import find_model, load_engine
from akv_rsi.tasks.traces.corpus import Corpus, load_corpus
from akv_rsi.tasks.traces.evaluator import TraceEvaluator
from akv_rsi.tasks.traces.fidelity import ModelObjective
from akv_rsi.tasks.traces.objective import Objective, Risk
from akv_rsi.tasks.traces.provider import load_tariff
from akv_rsi.tasks.traces.replays import Setting
from akv_rsi.tasks.traces.scripts import Scripts

NO_MODEL = "none"
# Of each conversation, calls are replayed until the segments they have add up to this, or to less
# if there are many such conversations.
WORK = 100_000
# And with a model, the first calls within so many tokens.
TOKENS = 4096


class _Basis(NamedTuple):
    """What a search rests on: conversations, how they are judged, and the span they reach."""

    corpus: Corpus
    objective: Objective
    span: int


def _basis(traces: tuple[str, ...], prices: str, seed: int, model: str, span: int) -> _Basis:
    tariff = load_tariff(prices)
    if model == NO_MODEL:
        return _Basis(load_corpus(traces, tariff, WORK, seed), Risk(), span)
    folder, chat = find_model(model)
    scripts = Scripts(chat, TOKENS)
    corpus = load_corpus(traces, tariff, WORK, seed, scripts)
    make = partial(load_engine, folder, EngineConfig(threads=1))
    return _Basis(corpus, ModelObjective(make, scripts.found), min(span, chat.reliable_span))


def asked_on_traces(
    traces: tuple[str, ...], prices: str, seed: int, model: str, span: int, quick: bool
) -> dict[str, Any]:
    """The part of a search's configuration that depends on the transcripts."""
    corpus, _, reach = _basis(traces, prices, seed, model, span)
    for line in corpus.notes:
        Console(stderr=True).print(line, style="yellow", highlight=False, markup=False)
    counts = {split: len(items) for split, items in corpus.splits.items()}
    deal = ", ".join(f"{count} {split}" for split, count in counts.items())
    how = "risk-weighted, no model"
    if model != NO_MODEL:
        how = f"fidelity by {model}, on the first {TOKENS:,} tokens of each"
    return {
        "traces": traces,
        "suites": (corpus.name,),
        "span": reach,
        "found_on": f"{corpus.about}; split by conversation: {deal}; {how}",
        **sizes_for(counts["train"], counts["validation"], counts["test"], quick),
    }


def trace_evaluator(config: SearchConfig, workers: int) -> TraceEvaluator:
    """The evaluator of a search on transcripts; `ConfigError` if they are others by now."""
    basis = _basis(config.traces, config.prices, config.seed, config.model, config.span)
    if basis.corpus.name not in config.suites:
        raise ConfigError(
            f"the transcripts in {', '.join(config.traces)} are not those this run began on; "
            "start a new run"
        )
    prices = load_tariff(config.prices).prices
    setting = Setting(prices, basis.span, budget=config.budget)
    return TraceEvaluator(basis.corpus, basis.objective, setting, workers)
