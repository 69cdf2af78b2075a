"""`akv-rsi bench llm`: what a model's proposals are worth before anything is run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from akv_rsi.cli.output import print_json
from akv_rsi.cli.search import make_evaluator
from akv_rsi.errors import ConfigError
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.search.candidate import Candidate
from akv_rsi.search.choice import keep_everything
from akv_rsi.search.config import SearchConfig
from akv_rsi.search.grammar import Vocabulary
from akv_rsi.search.screen import Screen, Screened
from akv_rsi.tasks.suites import task_refs


def bench_llm(
    *,
    llm: str,
    llm_base_url: str = SearchConfig().llm_base_url,
    llm_key_env: str = "",
    llm_grammar: bool = False,
    count: int = 50,
    budget: float = 0.8,
    tokens: int = 768,
    temperature: float = 1.0,
    json: bool = False,
) -> None:
    """Ask a model for policies and screen them: how many decide differently, and the fate of each.

    Args:
        llm: The model; vllm:PATH_OR_ID starts a server for it.
        llm_base_url: Its OpenAI-compatible endpoint.
        llm_key_env: The environment variable that holds its key.
        llm_grammar: The server is vLLM: hold programs to the grammar of the DSL.
        count: How many proposals.
        budget: The cost allowed, as a share of keeping everything.
        tokens: How long an answer may be.
        temperature: Of sampling: 0 would give one answer again and again.
        json: Print the result as JSON.
    """
    if count < 1:
        raise ConfigError(f"count must be at least 1, not {count}")
    config = SearchConfig(
        budget=budget,
        llm=(llm,),
        llm_base_url=llm_base_url,
        llm_key_env=llm_key_env,
        llm_grammar=llm_grammar,
    )
    with make_evaluator(config, 0) as evaluator:
        refs = task_refs(config.suites, "train", config.recordings)
        scripts = [script for script in evaluator.scripts(refs) if script is not None]
        screen = Screen(evaluator, scripts, (), keep_everything(), config.target)
        tools = ", ".join(Vocabulary.of(scripts).tools)
        drafts = _ask(config, tools, count, tokens, temperature)
        screened = [_screened(screen, source) for source in drafts]
    about = _about(llm, screened, screen.idle)
    if json:
        print_json(about)
    else:
        Console().print(about)


def _ask(
    config: SearchConfig, tools: str, count: int, tokens: int, temperature: float
) -> list[str | None]:
    """The programs of ``count`` answers; None where there was none."""
    from akv_rsi.search.ledger import Ledger
    from akv_rsi.search.llm.answers import Proposal
    from akv_rsi.search.llm.connect import models_of
    from akv_rsi.search.llm.endpoint import Endpoint, Limits
    from akv_rsi.search.llm.exchange import Ask, Exchange
    from akv_rsi.search.llm.prompts import prompt
    from akv_rsi.search.llm.serve import serving

    system = prompt("system", full="1", budget=f"{config.budget:g}", form="")
    user = prompt("new", parents="(there are none yet)", tools=tools, lessons="")
    with serving(config) as served:
        (model,) = models_of(served)
        limits = Limits(seconds=600, tokens=tokens)
        endpoint = Endpoint(model, limits, temperature=temperature)
        exchange = Exchange({model.name: endpoint}, Ledger())
        asks = [Ask(model.name, "new", system, user, Proposal)] * count
        answers = exchange.ask(asks, lambda _: "")
    return [answer.content["source"] if answer.content else None for answer in answers]


def _screened(screen: Screen, source: str | None) -> Screened | None:
    return source and screen.check(Candidate(PolicySpec("llm", source=source), "new"))  # type: ignore[return-value]


def _about(model: str, screened: Sequence[Screened | None], idle: str) -> dict[str, Any]:
    fates = Counter(_fate(one, idle) for one in screened)
    prints = {one.fingerprint for one in screened if one is not None and one.fingerprint}
    best = [one for one in screened if one is not None and one.fingerprint]
    best.sort(key=lambda one: one.support, reverse=True)
    return {
        "model": model,
        "proposals": len(screened),
        "fingerprints": len(prints),
        "fates": dict(fates.most_common()),
        "best_support": best[0].support if best else math.nan,
        "each": [
            None
            if one is None
            else {
                "fate": _fate(one, idle),
                "fingerprint": one.fingerprint,
                "ratio": one.ratio,
                "support": one.support,
            }
            for one in screened
        ],
    }


def _fate(one: Screened | None, idle: str) -> str:
    """In a word or two: no answer, the kind of error, does nothing, too dear, or fit to run."""
    if one is None:
        return "no answer"
    if one.fate:
        return one.fate.partition(":")[0]
    return "does nothing" if one.fingerprint == idle else "fit to run"
