"""`akv-rsi search`: find the best policy within a cost budget."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from akv_rsi.cli.evaluators import agent_evaluator, processes
from akv_rsi.cli.inspect import need_terminal, watch
from akv_rsi.cli.output import Bars, interval, print_json, rows_table
from akv_rsi.cli.trace_search import NO_MODEL, asked_on_traces, trace_evaluator
from akv_rsi.errors import ConfigError
from akv_rsi.search.config import QUICK, SearchConfig, recorded_config
from akv_rsi.search.estimate import estimate
from akv_rsi.search.llm.serve import serving
from akv_rsi.search.loop import run
from akv_rsi.search.report import SearchReport
from akv_rsi.search.store import Store, read_config
from akv_rsi.search.warm import inheritance
from akv_rsi.tasks.evaluator import Evaluator
from akv_rsi.tasks.load import REFERENCE, find_model
from akv_rsi.tasks.suites import BUILT_IN
from akv_rsi.tasks.traces.evaluator import TraceEvaluator


def search(
    *,
    budget: float = 0.8,
    seed: int = 0,
    suite: tuple[str, ...] = BUILT_IN,
    traces: tuple[str, ...] = (),
    model: str | None = None,
    prices: str = "claude",
    proposer: str = "grammar",
    episodes: int | None = None,
    span: int = 48_000,
    quick: bool = False,
    full: bool = False,
    runs: Path = Path("runs"),
    resume: Path | None = None,
    workers: int | None = None,
    evidence: bool = False,
    llm: tuple[str, ...] = (),
    llm_base_url: str = SearchConfig().llm_base_url,
    llm_key_env: str = "",
    llm_grammar: bool = False,
    llm_price: tuple[float, float] = (0.0, 0.0),
    max_usd: float | None = None,
    max_evals: int | None = None,
    max_time: float | None = None,
    warm_start: Path | None = None,
    dry_run: bool = False,
    tui: bool = False,
    json: bool = False,
) -> None:
    """Find the best policy at a share of the cost of keeping everything.

    Hand-written policies and best-of-N run beside the search, with the same number of episodes.
    The sealed test is read once, at the end. A run that was stopped goes on with --resume.

    Args:
        budget: The cost allowed, as a share of keeping everything: above 0, at most 1.
        seed: Of the search; the same seed gives the same archive.
        suite: repo, web, tools, or package.module:factory of your own; may be repeated.
        traces: Search on the recorded transcripts in this file or folder instead of a suite; may be
            repeated. Without a model, re-reads and mentions of what a policy dropped are its
            losses; with one, what it finds less likely.
        model: reference, a folder with a model, a .gguf file, or a hub id. Default: reference, or
            none with --traces.
        prices: claude, deepseek, gpt, gpu, or a .json file.
        proposer: Who thinks of new policies.
        episodes: Task episodes that each of search, best-of-N and hand-written policies may spend.
        span: With --traces: the reliable span policies are told, in tokens.
        quick: Half a minute instead of minutes: few tasks and few candidates.
        full: Test on twice as many tasks, and every hand-written policy.
        runs: Where run directories are made.
        resume: A run directory to continue; its own configuration is used.
        workers: Processes that run episodes; results do not depend on it. Default: one per core.
        evidence: Criticise candidates with evidence from the cache, and breed from what is found.
        llm: A model that proposes policies beside the grammar; may be repeated. vllm:PATH_OR_ID:
            a server of its own is started, and stopped.
        llm_base_url: The OpenAI-compatible endpoint of these models.
        llm_key_env: The environment variable that holds its key; none for a server without one.
        llm_grammar: The server is vLLM: hold programs to the grammar of the DSL.
        llm_price: Dollars per million tokens, in and out.
        max_usd: Dollars that proposals may cost; after that the grammar goes on alone.
        max_evals: Task episodes in all. A stopped search still has a validated, tested best.
        max_time: Seconds in all, likewise.
        warm_start: A finished run whose best policies and lessons this one begins with.
        dry_run: Say what the search would take at most, and do nothing.
        tui: Watch it in the inspector, where it can be paused and stopped.
        json: Print the result as JSON.
    """
    if resume is None:
        model = model or (NO_MODEL if traces else REFERENCE)
        asked = {"budget": budget, "seed": seed, "suites": suite, "model": model}
        asked |= {"prices": prices, "proposer": proposer, "full": full, "evidence": evidence}
        asked |= {"llm": llm, "llm_base_url": llm_base_url, "llm_key_env": llm_key_env}
        asked |= {
            "llm_grammar": llm_grammar,
            "llm_price": llm_price,
            "max_usd": max_usd,
            "max_evals": max_evals,
        }
        asked |= {"max_time": max_time, "span": span}
        asked |= {"warm_start": "" if warm_start is None else str(warm_start.resolve())}
        if traces and suite != BUILT_IN:
            raise ConfigError("--traces and --suite exclude each other")
        if traces:
            asked |= asked_on_traces(traces, prices, seed, model, span, quick)
        config = _configure(asked, episodes, quick)
        if warm_start is not None:
            inheritance(warm_start)  # one that cannot be begun with is told before anything is made
    else:
        config = recorded_config(read_config(resume))
    about = estimate(config)  # models that cannot be asked are told before anything is made
    if dry_run:
        show_estimate(about, json)
        return
    if tui:
        need_terminal()
    evaluator = make_evaluator(config, workers)
    store = Store.open(resume) if resume else _create(runs, config)
    if tui:
        store.close()
        watch(store.path, workers)
        return
    with store, evaluator, Bars() as bars, serving(config) as served:
        evaluator.on_episode = lambda _: bars.advance(1)
        bars.say(f"run {store.path}")
        report = run(served, evaluator, store, bars)
    if json:
        print_json(report.as_json())
    else:
        show(report, Console())


def show_estimate(about: dict[str, Any], as_json: bool) -> None:
    """What a search would take."""
    if as_json:
        print_json(about)
        return
    lines = [f"at most {about['evaluations']:g} evaluations, {about['seconds'] / 60:.0f} minutes"]
    if "llm_calls" in about:
        lines.append(
            f"{about['llm_calls']} LLM calls, {about['llm_tokens']:,} tokens, ${about['usd']:.2f}"
        )
    for line in [*lines, *about["warnings"]]:
        Console().print(line, highlight=False)


def show(report: SearchReport, console: Console) -> None:
    """The summary of a finished search, for people."""
    rows = [("best", report.best.test), ("keep everything", report.keep_everything.test)]
    rows.append(("oracle (hindsight)", report.oracle and report.oracle.test))  # type: ignore[arg-type]
    rows.append(("best of N", report.best_of_n and report.best_of_n.test))  # type: ignore[arg-type]
    rows += [(_label(n.name, n.tunables), n.test) for n in report.baselines]
    if report.found_on:
        console.print(f"Searched on {report.found_on}", highlight=False, markup=False)
    console.print(rows_table(rows, f"Sealed test, budget {report.budget:g}", report.measure))
    for pair in report.comparisons:
        inside = "" if pair.in_span is None else f", in span {interval(pair.in_span, '+')}"
        console.print(
            f"best against {pair.against}: {pair.verdict}; {report.measure} "
            f"{interval(pair.accuracy, '+')}{inside}, cost {pair.cost[0]:+.1%}",
            highlight=False,
        )
    if not report.best.within_budget:
        console.print("No policy within the budget was found: this one comes nearest.")
    console.print(
        f"{report.evaluations} episodes in {report.wall_s:.0f} s ({report.rate:.1f}/s), "
        f"{report.candidates} candidates of {report.proposals} proposals, "
        f"{report.cached_share:.0%} of prompt tokens from the cache",
        highlight=False,
    )
    if report.llm_tokens:
        console.print(
            f"models read and wrote {report.llm_tokens:,} tokens, ${report.usd:.4f}",
            highlight=False,
        )
    console.print(f"policy: {report.best.policy_path}", highlight=False, soft_wrap=True)


def _label(name: str, tunables: dict[str, int | float]) -> str:
    return " ".join([name, *(f"{key}={value:.4g}" for key, value in tunables.items())])


def _configure(asked: dict[str, Any], episodes: int | None, quick: bool) -> SearchConfig:
    chosen: dict[str, Any] = {**(QUICK if quick else {}), **asked}
    if episodes is not None:
        chosen["episodes"] = episodes
    if asked["full"] and not chosen.get("traces"):
        chosen["test"] = 2 * chosen.get("test", SearchConfig().test)
    return SearchConfig(**chosen)


def make_evaluator(config: SearchConfig, workers: int | None) -> Evaluator | TraceEvaluator:
    """Everything that was asked for is looked at here, before a run directory is made."""
    if workers is not None and workers < 0:
        raise ConfigError(f"workers must not be negative, not {workers}")
    if config.traces:
        return trace_evaluator(config, processes(workers))
    return agent_evaluator(config.suites, config.model, config.prices, config.budget, workers)


def _create(runs: Path, config: SearchConfig) -> Store:
    span = config.span if config.traces else find_model(config.model)[1].reliable_span
    facts = {"reliable_span": span}
    return Store.create(_fresh(runs, config), asdict(config), facts)


def _fresh(runs: Path, config: SearchConfig) -> Path:
    """A directory name that is not taken yet."""
    stem = f"{datetime.now():%Y%m%d-%H%M%S}-{config.budget:g}-{config.seed}"
    path, serial = runs / stem, 1
    while path.exists():
        serial += 1
        path = runs / f"{stem}-{serial}"
    return path
