"""`akv-rsi bench search`: what each part of the search is worth, over seeds, at equal episodes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from akv_rsi.cli.output import Bars, print_json
from akv_rsi.cli.search import make_evaluator
from akv_rsi.errors import ConfigError
from akv_rsi.search.compare import CONTENDERS, Contest, contend, summary
from akv_rsi.search.config import QUICK, SearchConfig
from akv_rsi.tasks.suites import BUILT_IN


def bench_search(
    *,
    seeds: int = 5,
    contender: tuple[str, ...] = tuple(CONTENDERS),
    budget: float = 0.8,
    suite: tuple[str, ...] = BUILT_IN,
    unseen: tuple[str, ...] = (),
    model: str = "reference",
    episodes: int | None = None,
    quick: bool = False,
    workers: int | None = None,
    json: bool = False,
) -> None:
    """Compare the search with itself, parts of it left out, and with best-of-N.

    Every contender spends the same number of episodes on each seed. Its leaders are looked at on
    validation tasks afterwards; the sealed test is read once, at the end of each search.

    Args:
        seeds: How many, from 0 on.
        contender: Which to run; may be repeated. Default: all.
        budget: The cost allowed, as a share of keeping everything.
        suite: Suites to search on; may be repeated.
        unseen: Suites to test each result on besides, which the search does not see.
        model: reference, or a folder with a model.
        episodes: Task episodes that each search may spend.
        quick: Few tasks and few candidates.
        workers: Processes that run episodes. Default: one per core.
        json: Print the result as JSON.
    """
    if unknown := [name for name in contender if name not in CONTENDERS]:
        raise ConfigError(f"unknown contender {unknown[0]!r}: use {', '.join(CONTENDERS)}")
    if seeds < 1 or set(unseen) & set(suite):
        raise ConfigError("seeds must be at least 1, and unseen suites others than those searched")
    chosen: dict[str, Any] = {**(QUICK if quick else {}), "budget": budget, "suites": suite}
    chosen |= {"model": model} | ({"episodes": episodes} if episodes is not None else {})
    config = SearchConfig(**chosen)
    contests = list(_contests(config, seeds, contender, unseen, workers))
    means = summary(contests)
    if json:
        about = {"config": asdict(config), "unseen": list(unseen), "summary": means}
        print_json(about | {"contests": [asdict(contest) for contest in contests]})
    else:
        _show(means, f"{seeds} seeds, {config.episodes} episodes each", Console())


def _contests(
    config: SearchConfig,
    seeds: int,
    contenders: tuple[str, ...],
    unseen: tuple[str, ...],
    workers: int | None,
) -> Iterator[Contest]:
    with (
        make_evaluator(config, workers) as evaluator,
        tempfile.TemporaryDirectory() as folder,
        Bars() as bars,
    ):
        evaluator.on_episode = lambda _: bars.advance(1)
        for seed in range(seeds):
            for number, name in enumerate(contenders):
                bars.say(f"seed {seed}: {name}")
                path = Path(folder) / f"{seed}-{number}"
                yield contend(name, replace(config, seed=seed), evaluator, path, bars, unseen)


def _show(about: dict[str, dict[str, Any]], title: str, console: Console) -> None:
    table = Table(title=title, title_justify="left")
    for name in ("search", "area", "against grammar", "test accuracy", "cost ratio"):
        table.add_column(name, justify="left" if name == "search" else "right")
    for name, row in about.items():
        gap = row.get("area_against_grammar")
        against = "-" if gap is None else f"{gap[0]:+.3f} [{gap[1]:+.2f} {gap[2]:+.2f}]"
        numbers = [f"{row[key]:.3f}" for key in ("area", "test_accuracy", "test_cost_ratio")]
        table.add_row(name, numbers[0], against, *numbers[1:])
    console.print(table)
