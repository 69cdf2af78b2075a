"""`akv-rsi critique`: why a candidate of a run failed, with evidence from the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from akv_rsi.cli.names import candidate_of
from akv_rsi.cli.output import Bars, print_json
from akv_rsi.cli.search import make_evaluator
from akv_rsi.errors import ConfigError, StoreError
from akv_rsi.search.codec import encode
from akv_rsi.search.config import recorded_config
from akv_rsi.search.critique import critique as find_causes
from akv_rsi.search.findings import Critique
from akv_rsi.search.report import load_report
from akv_rsi.search.store import Store, read_config
from akv_rsi.search.tell import described, sentence
from akv_rsi.tasks.suites import task_refs

TASKS = 24


def critique(
    run: Path,
    *,
    candidate: str | None = None,
    tasks: int = TASKS,
    workers: int | None = None,
    json: bool = False,
) -> None:
    """Run a candidate on train tasks again and find out why it fails where it does.

    Each failed task is forked at the first action that departs from the expert's, and what was
    dropped is restored, one span at a time and then in groups, until the action comes out right.

    Args:
        run: The run's directory.
        candidate: The candidate's id. Default: the best one of a finished run.
        tasks: How many train tasks, from the first one on.
        workers: Processes that run episodes; results do not depend on it. Default: one per core.
        json: Print the evidence as JSON.
    """
    if tasks < 1:
        raise ConfigError(f"tasks must be at least 1, not {tasks}")
    config = recorded_config(read_config(run))
    if config.traces:
        raise ConfigError(f"{run} searched on transcripts: they hold no tasks to run again")
    with Store.read(run) as store:
        report = load_report(store)
        if report is None and candidate is None:
            raise StoreError(f"{run} is not finished: name a candidate with --candidate")
        found = candidate_of(store, candidate or (report.best.id if report else ""))
    refs = task_refs(config.suites, "train", min(tasks, config.train))
    with make_evaluator(config, workers) as evaluator, Bars() as bars:
        evaluator.on_episode = lambda _: bars.advance(1)
        bars.begin("episodes", len(refs))
        (episodes,) = evaluator.run([found.spec], refs, keep=True)
        evidence = find_causes(evaluator, episodes)
    failed = sum(not episode.success for episode in episodes)
    if json:
        print_json(_plain(found.id, failed, len(refs), evidence))
    else:
        _show(f"{found.id}: {failed} of {len(refs)} train tasks failed", evidence, Console())


def _plain(identity: str, failed: int, tasks: int, evidence: Critique) -> dict[str, Any]:
    about: dict[str, Any] = {"candidate": identity, "tasks": tasks, "failed": failed}
    parts = {name: encode(getattr(evidence, name)) for name in ("findings", "waste", "skipped")}
    effort = encode(evidence.effort) | {"share_of_fresh": evidence.effort.share}
    return about | parts | {"effort": effort}


def _show(title: str, evidence: Critique, console: Console) -> None:
    console.print(title, highlight=False)
    for finding in evidence.findings:
        console.print(sentence(finding), highlight=False, markup=False)
    for line in evidence.skipped:
        console.print(f"no evidence from {line}", highlight=False, markup=False)
    table = Table(title="Kept and not needed", title_justify="left")
    for name in ("task", "tokens read", "span"):
        table.add_column(name, overflow="fold")
    for waste in evidence.waste:
        task = f"{waste.task.suite}/{waste.task.seed}"
        table.add_row(task, str(waste.reads), escape(described(waste.span)))
    console.print(table)
    effort = evidence.effort
    console.print(
        f"{effort.forks} forks computed {effort.computed} tokens, {effort.share:.0%} of what fresh "
        f"runs would have",
        highlight=False,
    )
