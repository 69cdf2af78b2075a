"""`akv-rsi bench serve`: agents at a server, at growing concurrency, under several policies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.table import Table

from akv_rsi.cli.names import policy_named
from akv_rsi.cli.output import print_json
from akv_rsi.config import EngineConfig
from akv_rsi.errors import ConfigError
from akv_rsi.policies import library
from akv_rsi.policies.resident import AGENT_KINDS
from akv_rsi.server.limits import ServerConfig
from akv_rsi.server.tenants import Tenants
from akv_rsi.tasks.agent import ChatFormat
from akv_rsi.tasks.cost import PriceModel, load_prices
from akv_rsi.tasks.load import RELIABLE, find_model, load_engine, shaped_engine
from akv_rsi.tasks.reference.model import load_reference
from akv_rsi.tasks.script import demonstrate
from akv_rsi.tasks.suites import load_suite, task_refs
from akv_rsi.tasks.traces.scripts import reading_whole, recorded, script_of
from akv_rsi.types import Trajectory

if TYPE_CHECKING:
    from akv_rsi.engine.engine import Engine

POLICIES = ("full", "truncate", "trim", "summarise", "rolling_drop_refresh:keep=3")
SUITES = ("repo", "web", "tools")
MAX_TURNS = 200


def bench_serve(
    *,
    model: str = "reference",
    shape: str | None = None,
    suite: tuple[str, ...] = (),
    traces: tuple[str, ...] = (),
    tokens: int = 32768,
    policy: tuple[str, ...] = POLICIES,
    concurrency: tuple[int, ...] = (1, 4, 16),
    runs: int = 16,
    rounds: int = 1,
    pages: int = 8192,
    span: int | None = None,
    answer: int = 8,
    summary_tokens: int = 64,
    delay: float = 0.05,
    prices: str = "claude",
    device: Literal["cpu", "cuda"] = "cpu",
    json: bool = False,
) -> None:
    """Replay agent trajectories against a server: times, throughput, cost, hits and pages.

    Args:
        model: reference, a folder with a model, a .gguf file, or a hub id.
        shape: Random weights of this shape (8b: Llama-3.1-8B's) instead of the model's; its
            tokenizer and chat template stay.
        suite: Whose experts' trajectories are replayed (repo, web, tools); may be repeated.
            Default: all three.
        traces: Recorded transcripts to replay instead: files, or folders; may be repeated.
        tokens: Of each recorded conversation the first calls within so many tokens.
        policy: A policy or text-editing baseline; may be repeated.
        concurrency: How many agents at once; may be repeated.
        runs: How many trajectories in each measurement.
        rounds: How often each measurement is made, all in turn, so that what else the machine does
            falls on all alike.
        pages: Pages of 16 tokens of KV.
        span: The reliable span policies are told, in tokens; text edits begin there. Default: the
            model's.
        answer: Tokens of an answer.
        summary_tokens: Tokens of a summary at most.
        delay: Seconds a tool takes.
        prices: claude, deepseek, gpt, gpu, or a .json file.
        device: Where the model runs: in single precision on cpu, in bfloat16 on cuda, where
            kernels are compiled in a round that does not count.
        json: Print the result as JSON.
    """
    from akv_rsi.server.bench import Measures, Setting, measure
    from akv_rsi.server.launch import service_on

    if min(runs, rounds, answer, summary_tokens, 1 if span is None else span, *concurrency) < 1:
        raise ConfigError(
            "runs, rounds, concurrency, span, answer and summary tokens must be at least 1"
        )
    if tokens < 2 or delay < 0:
        raise ConfigError("tokens must be at least 2, the delay at least 0")
    if max(concurrency) > runs:
        raise ConfigError(f"{runs} runs are too few for {max(concurrency)} agents at once")
    if suite and traces:
        raise ConfigError("name --suite or --traces, and not both")
    specs = {name: policy_named(name, oracle=False) for name in policy}
    (folder, chat), tariff = find_model(model), load_prices(prices)
    config = EngineConfig(
        pages=pages, device=device, dtype="float32" if device == "cpu" else "bfloat16"
    )
    if traces:
        trajectories = _recorded(traces, runs, chat, tokens, pages * config.page_size)
    else:
        trajectories = _demonstrated(suite or SUITES, runs, tariff)
    engine = _engine(folder, shape, config)
    span = span or (chat.reliable_span if shape is None else int(RELIABLE * engine.positions))
    setting = Setting(span, answer, delay, summary=summary_tokens)

    def run(name: str, count: int, trajectories: Sequence[Trajectory], found: Measures) -> None:
        spec = specs[name]
        editor = library.editor(spec.name, **dict(spec.tunables)) if spec.kind == "editor" else None
        ops = None if editor is not None else spec
        engine.reset()
        service = service_on(engine, model, ServerConfig(), Tenants(), ops, span=setting.span)
        asyncio.run(measure(service, trajectories, count, setting, found, editor))

    found = {(name, count): Measures() for count in concurrency for name in policy}
    if device == "cuda":
        for name, count in found:
            run(name, count, trajectories[:count], Measures())
    for (name, count), measures in [*found.items()] * rounds:
        run(name, count, trajectories, measures)
    rows = [
        {"policy": name, "concurrency": count, **found[name, count].row(pages, tariff)}
        for name in policy
        for count in concurrency
    ]
    if json:
        about = {"model": model, "shape": shape, "device": device, "prices": prices}
        sizes = {"runs": runs, "rounds": rounds, "pages": pages, "span": span, "answer": answer}
        print_json({**about, **sizes, "rows": rows})
    else:
        for count in concurrency:
            Console().print(_table([row for row in rows if row["concurrency"] == count]))


def _demonstrated(suites: tuple[str, ...], runs: int, prices: PriceModel) -> list[Trajectory]:
    """What the experts of train tasks did."""
    chat = load_reference()[1]
    made = [
        demonstrate(
            f"{ref.suite}-{ref.seed}",
            load_suite(ref.suite).environment(ref.seed),
            chat,
            prices,
            MAX_TURNS,
        )
        for ref in task_refs(suites, "train", runs)
    ]
    found = [trajectory for trajectory in made if trajectory is not None]
    if not found:
        raise ConfigError(f"the suites {', '.join(suites)} have no experts to replay")
    return found


def _recorded(
    paths: tuple[str, ...], runs: int, chat: ChatFormat, tokens: int, room: int
) -> list[Trajectory]:
    """The first conversations in ``paths`` that agents can replay.

    ``room`` is how many tokens there are pages for: `ConfigError` when one needs more.
    """
    scripts = (script_of(context, chat, tokens) for context in recorded(reading_whole(paths)))
    usable = (one.context.trajectory for one in scripts if one is not None)
    opened = (one for one in usable if one.segments[0].kind not in AGENT_KINDS)
    found = list(islice(opened, runs))
    if len(found) < runs:
        raise ConfigError(
            f"{len(found)} conversations in {', '.join(paths)} have two calls within {tokens} "
            f"tokens: {runs} runs need as many"
        )
    longest = max(one.segments[-1].end for one in found)
    if longest > room:
        raise ConfigError(
            f"the longest conversation has {longest} tokens, but there are pages for {room}: "
            "use more --pages, or fewer --tokens"
        )
    return found


def _engine(folder: Path, shape: str | None, config: EngineConfig) -> Engine:
    """The engine that is measured; `ConfigError` when the device is not there, or too small."""
    import torch

    try:
        if shape is None:
            return load_engine(folder, config)
        return shaped_engine(shape, folder, replace(config, self_test=False))
    except torch.OutOfMemoryError as error:
        raise ConfigError(
            f"the weights and {config.pages} pages do not fit on the device: use fewer --pages"
        ) from error


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    """The policies at one concurrency, side by side."""
    table = Table(title=f"agents at once: {rows[0]['concurrency']}", title_justify="left")
    table.add_column("")
    for row in rows:
        table.add_column(row["policy"], justify="right", overflow="fold")
    for name in rows[0]:
        if name not in ("policy", "concurrency"):
            table.add_row(name.replace("_", " "), *(str(row[name]) for row in rows))
    return table
