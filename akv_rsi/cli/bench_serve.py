"""`akv-rsi bench serve`: agents at a server, at growing concurrency, under several policies."""

from __future__ import annotations

import asyncio
from typing import Any

from rich.console import Console
from rich.table import Table

from akv_rsi.cli.names import policy_named
from akv_rsi.cli.output import print_json
from akv_rsi.config import EngineConfig
from akv_rsi.errors import ConfigError
from akv_rsi.policies import library
from akv_rsi.server.limits import ServerConfig
from akv_rsi.server.tenants import Tenants
from akv_rsi.tasks.cost import PriceModel, load_prices
from akv_rsi.tasks.load import find_span, load_engine
from akv_rsi.tasks.reference.model import load_reference
from akv_rsi.tasks.script import demonstrate
from akv_rsi.tasks.suites import load_suite, task_refs
from akv_rsi.types import Trajectory

POLICIES = ("full", "truncate", "trim", "summarise", "rolling_drop_refresh:keep=3")
MAX_TURNS = 200


def bench_serve(
    *,
    model: str = "reference",
    suite: tuple[str, ...] = ("repo", "web", "tools"),
    policy: tuple[str, ...] = POLICIES,
    concurrency: tuple[int, ...] = (1, 4, 16),
    runs: int = 16,
    rounds: int = 1,
    pages: int = 8192,
    delay: float = 0.05,
    prices: str = "claude",
    json: bool = False,
) -> None:
    """Replay agent trajectories against a server: times, throughput, cost, hits and pages.

    Args:
        model: reference, a folder with a model, a .gguf file, or a hub id.
        suite: Whose experts' trajectories are replayed; may be repeated.
        policy: A policy or text-editing baseline; may be repeated.
        concurrency: How many agents at once; may be repeated.
        runs: How many trajectories in each measurement.
        rounds: How often each measurement is made, all in turn, so that what else the machine does
            falls on all alike.
        pages: Pages of KV.
        delay: Seconds a tool takes.
        prices: claude, deepseek, gpt, gpu, or a .json file.
        json: Print the result as JSON.
    """
    from akv_rsi.server.bench import Measures, Setting, measure
    from akv_rsi.server.launch import service_on

    if runs < 1 or rounds < 1 or any(count < 1 for count in concurrency):
        raise ConfigError("runs, rounds and concurrency must be at least 1")
    if max(concurrency) > runs:
        raise ConfigError(f"{runs} runs are too few for {max(concurrency)} agents at once")
    specs = {name: policy_named(name, oracle=False) for name in policy}
    folder, span = find_span(model)
    tariff, setting = load_prices(prices), Setting(span, delay=delay)
    trajectories = _trajectories(suite, runs, tariff)
    engine = load_engine(folder, EngineConfig(pages=pages))
    found = {(name, count): Measures() for count in concurrency for name in policy}
    for (name, count), measures in [*found.items()] * rounds:
        spec = specs[name]
        editor = library.editor(spec.name, **dict(spec.tunables)) if spec.kind == "editor" else None
        engine.reset()
        service = service_on(
            engine, model, ServerConfig(), Tenants(), None if editor is not None else spec
        )
        asyncio.run(measure(service, trajectories, count, setting, measures, editor))
    rows = [
        {"policy": name, "concurrency": count, **found[name, count].row(pages, tariff)}
        for name in policy
        for count in concurrency
    ]
    if json:
        about = {"model": model, "runs": runs, "rounds": rounds, "pages": pages, "prices": prices}
        print_json({**about, "rows": rows})
    else:
        Console().print(_table(rows))


def _trajectories(suites: tuple[str, ...], runs: int, prices: PriceModel) -> list[Trajectory]:
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


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table()
    for name in rows[0]:
        table.add_column(name.replace("_", " "), justify="left" if name == "policy" else "right")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    return table
