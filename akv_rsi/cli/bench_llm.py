"""`akv-rsi bench llm`: what a model's proposals are worth before anything is run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from akv_rsi.cli.output import print_json
from akv_rsi.cli.search import make_evaluator
from akv_rsi.errors import ConfigError, LintError
from akv_rsi.policies.lint import lint
from akv_rsi.policies.sandbox import check_types
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.search.candidate import Candidate
from akv_rsi.search.choice import keep_everything
from akv_rsi.search.config import SearchConfig
from akv_rsi.search.grammar import Vocabulary
from akv_rsi.search.screen import Screen, Screened
from akv_rsi.tasks.suites import task_refs

if TYPE_CHECKING:
    from akv_rsi.search.llm.exchange import Answered


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
        answers = _ask(config, tools, count, tokens, temperature)
        proposals = _screened(screen, answers)
    about = _about(llm, proposals)
    if json:
        print_json(about)
    else:
        _show(about, Console())


def _ask(
    config: SearchConfig, tools: str, count: int, tokens: int, temperature: float
) -> list[Answered]:
    """``count`` answers; `ConfigError` when the model cannot be asked."""
    from akv_rsi.search.ledger import Ledger
    from akv_rsi.search.llm.answers import Proposal, probe
    from akv_rsi.search.llm.connect import models_of
    from akv_rsi.search.llm.endpoint import Endpoint, Limits, unusable
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
        mode, told = probe(endpoint)
        if mode is None:
            raise unusable(endpoint, f"{told.failure} {told.detail}".strip())
        exchange.modes[model.name] = mode
        asks = [Ask(model.name, "new", system, user, Proposal)] * count
        return exchange.ask(asks, lambda _: "")


def _screened(screen: Screen, answers: Sequence[Answered]) -> list[dict[str, Any]]:
    """Each answer with its fate: no answer, a kind of error, no effect, seen before, dear, fit."""
    known = {screen.idle: "does nothing"}
    proposals: list[dict[str, Any]] = []
    for answer in answers:
        if answer.content is None:
            fate = f"no answer: {answer.failure}"
            proposals.append({"fate": fate, "fingerprint": "", "source": answer.text})
            continue
        source = answer.content["source"]
        found = _screen(screen, Candidate(PolicySpec("llm", source=source), "new"))
        fate = known.get(found.fingerprint) or found.fate or "fit to run"
        if found.fingerprint:
            known.setdefault(found.fingerprint, "duplicate")
        measured = {"ratio": found.ratio, "support": found.support}
        proposals.append(
            {"fate": fate, "fingerprint": found.fingerprint, **measured, "source": source}
        )
    return proposals


def _screen(screen: Screen, candidate: Candidate) -> Screened:
    """As a search does: lint, types, a replay, and that the sandbox and plain Python agree."""
    try:
        lint(candidate.spec.source)
        check_types(candidate.spec.source)
    except LintError as error:
        return Screened(candidate, f"{type(error).__name__}: {error}")
    found = screen.check(candidate)
    if found.fingerprint and screen.prove(candidate) is None:
        return Screened(candidate, "ParityError: the sandbox and plain Python differ")
    return found


def _about(model: str, proposals: Sequence[dict[str, Any]]) -> dict[str, Any]:
    fates = Counter(proposal["fate"].partition(":")[0] for proposal in proposals)
    prints = {proposal["fingerprint"] for proposal in proposals} - {""}
    supports = [p["support"] for p in proposals if p["fate"] == "fit to run"]
    return {
        "model": model,
        "proposals": len(proposals),
        "fingerprints": len(prints),
        "fates": dict(fates.most_common()),
        "best_support": max(supports, default=None),
        "each": proposals,
    }


def _show(about: dict[str, Any], console: Console) -> None:
    title = f"{about['proposals']} proposals, {about['fingerprints']} different behaviours"
    table = Table(title=title, title_justify="left")
    for name in ("fate", "proposals"):
        table.add_column(name)
    for fate, number in about["fates"].items():
        table.add_row(fate, str(number))
    console.print(table)
