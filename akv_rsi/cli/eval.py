"""`akv-rsi eval`: policies on tasks, built-in ones or files, against keeping everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from akv_rsi.cli.evaluators import agent_evaluator
from akv_rsi.cli.names import ORACLE, policy_named
from akv_rsi.cli.output import Bars, print_json, rows_table
from akv_rsi.errors import PolicyError
from akv_rsi.policies import library
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.policies.vocabulary import capabilities_of
from akv_rsi.tasks.episode import Episode, Split, TaskRef
from akv_rsi.tasks.evaluator import Evaluator
from akv_rsi.tasks.suites import BUILT_IN, task_refs
from akv_rsi.tasks.summary import Row, engine_figures, summarise
from akv_rsi.types import Trajectory

FULL = library.spec("full")
TASKS = 96


@dataclass(frozen=True, slots=True)
class Evaluated:
    """One policy's part of the result. ``row`` is None where the suites offer no hindsight."""

    label: str
    spec: PolicySpec
    row: Row | None
    episodes: Sequence[Episode]

    @property
    def detail(self) -> str:
        """What went wrong first, if anything did."""
        return next((e.detail for e in self.episodes if e.outcome != "done"), "")


def evaluate(
    *policies: str,
    suite: tuple[str, ...] = BUILT_IN,
    split: Split = "validation",
    tasks: int | None = None,
    seed: int = 0,
    model: str = "reference",
    prices: str = "claude",
    budget: float = 0.8,
    workers: int | None = None,
    full: bool = False,
    json: bool = False,
) -> None:
    """Evaluate policies on tasks: accuracy, and cost against keeping everything.

    A policy is a file, an exported module, ``oracle``, ``agent-directed`` (the agent has a tool and
    decides itself), or a built-in one, with its numbers if they are to differ from the defaults:
    ``rolling_drop:keep=4``. Without any, all built-in ones and the oracle are evaluated.

    Args:
        policies: Names or files.
        suite: repo, web, tools, or package.module:factory of your own; may be repeated.
        split: train, validation or test.
        tasks: How many tasks, taken from the suites in turn. Default: 96, or 192 with --full.
        seed: Of the intervals' resampling.
        model: reference, a folder with a model, a .gguf file, or a hub id.
        prices: claude, deepseek, gpt, gpu, or a .json file.
        budget: The budget that policies are told.
        workers: Processes that run episodes; results do not depend on it. Default: one per core.
        full: Twice as many tasks.
        json: Print the result as JSON.
    """
    count = tasks if tasks is not None else TASKS * (1 + full)
    chosen = [*map(policy_named, policies)] or [*map(library.spec, library.names()), ORACLE]
    labels = list(policies) or [*library.names(), ORACLE.name]
    refs = task_refs(suite, split, count)
    with agent_evaluator(suite, model, prices, budget, workers) as evaluator, Bars(json) as bars:
        evaluator.on_episode = lambda _: bars.advance(1)
        results = _run(evaluator, bars, dict(zip(labels, chosen, strict=True)), refs, seed)
    about: dict[str, Any] = {"suites": list(suite), "split": split, "tasks": count, "seed": seed}
    about |= {"model": model, "prices": prices, "budget": budget}
    if json:
        print_json(about | {"policies": [_plain(result) for result in results]})
    else:
        _show(results, f"{count} {split} tasks of {', '.join(suite)}; {prices} prices")
    for result in results:
        if result.row is not None and result.row.failures == result.row.n:
            raise PolicyError(f"{result.label} failed on every task: {result.detail}")


def _run(
    evaluator: Evaluator,
    bars: Bars,
    named: dict[str, PolicySpec],
    refs: Sequence[TaskRef],
    seed: int,
) -> list[Evaluated]:
    """Every named policy's result, in order; keep-everything runs too, to compare with."""
    scripts = [script for script in evaluator.scripts(refs) if script is not None]
    distinct = {spec.id: spec for spec in (FULL, *named.values())}
    # Replays come first: what is wrong with a policy shows there before any model runs.
    fixed = {id_: _fixed_cost(evaluator, spec, scripts) for id_, spec in distinct.items()}
    bars.begin("episodes", len(distinct) * len(refs))
    # A cohort for each policy, as in a search's sealed test: so its row is repeated exactly.
    rows = {id_: evaluator.run([spec], refs, keep=True)[0] for id_, spec in distinct.items()}
    return [
        Evaluated(
            label,
            spec,
            _row(evaluator, rows[spec.id], rows[FULL.id], (fixed[spec.id], fixed[FULL.id]), seed),
            rows[spec.id],
        )
        for label, spec in named.items()
    ]


def _fixed_cost(
    evaluator: Evaluator, spec: PolicySpec, scripts: Sequence[Trajectory]
) -> float | None:
    """Its cost on the experts' actions; None where it decides by what only a run can measure."""
    if "attention" in capabilities_of(spec.source):
        return None
    return sum(replay.cost for replay in evaluator.replay_cost(spec, scripts))


def _row(
    evaluator: Evaluator,
    ours: Sequence[Episode],
    full: Sequence[Episode],
    fixed: tuple[float | None, float | None],
    seed: int,
) -> Row | None:
    if any(e.policy == ORACLE.id and e.outcome == "infrastructure" for e in ours):
        return None
    ours_fixed, full_fixed = fixed
    both = (ours_fixed, full_fixed) if ours_fixed is not None and full_fixed else None
    return summarise(ours, full, evaluator.prices, seed, both)


def _plain(result: Evaluated) -> dict[str, Any]:
    about: dict[str, Any] = {"name": result.label, "tunables": dict(result.spec.tunables)}
    row = result.row.to_json() if result.row else dict.fromkeys(("accuracy", "cost_ratio"))
    episodes = [
        {
            "task": f"{e.task.suite}/{e.task.seed}",
            "success": e.success,
            "cost": e.cost,
            "outcome": e.outcome,
            "detail": e.detail,
        }
        for e in result.episodes
    ]
    return about | row | {"engine": engine_figures(result.episodes), "episodes": episodes}


def _show(results: Sequence[Evaluated], title: str) -> None:
    console = Console()
    console.print(rows_table([(result.label, result.row) for result in results], title))
    for result in results:
        if result.detail:
            lost = result.row and result.row.failures + result.row.excluded
            console.print(f"{result.label}: {lost or 'all'} tasks ended early: {result.detail}")
