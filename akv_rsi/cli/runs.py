"""`akv-rsi runs`: list and show the runs in a directory. It reads the stores and nothing else."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from akv_rsi.cli.output import print_json
from akv_rsi.cli.search import show as show_report
from akv_rsi.errors import StoreError
from akv_rsi.search.report import load_report
from akv_rsi.search.store import Store, is_locked


def list_runs(directory: Path = Path("runs"), *, json: bool = False) -> None:
    """List the runs, the oldest first.

    Args:
        directory: Where the run directories are.
        json: Print the list as JSON.
    """
    found = [describe(path.parent) for path in sorted(directory.glob("*/config.json"))]
    if json:
        print_json(found)
        return
    table = Table(title=f"Runs in {directory}", title_justify="left")
    for name in ("run", "state", "budget", "seed", "episodes", "accuracy", "cost ratio"):
        table.add_column(name)
    for run in found:
        numbers = [_number(run.get(key)) for key in ("episodes", "accuracy", "cost_ratio")]
        table.add_row(
            Path(run["run_dir"]).name, run["state"], str(run["budget"]), str(run["seed"]), *numbers
        )
    Console().print(table if found else f"no runs in {directory}")


def show(run: Path, *, json: bool = False) -> None:
    """Show what a run found, or how far it is.

    Args:
        run: The run's directory.
        json: Print it as JSON: the search's own result if the run is finished.
    """
    with Store.read(run) as store:
        report = load_report(store)
    if report is None:
        description = describe(run)
        print_json(description) if json else Console().print(description)
    elif json:
        print_json(report.as_json())
    else:
        show_report(report, Console())


def describe(path: Path) -> dict[str, Any]:
    """A run in a few words; a damaged one says so instead of raising."""
    about: dict[str, Any] = {"run_dir": str(path), "budget": None, "seed": None}
    try:
        with Store.read(path) as store:
            about |= {key: store.config.get(key) for key in ("budget", "seed")}
            events = list(store.events())
            report = load_report(store)
    except StoreError as error:
        return about | {"state": "damaged", "detail": str(error)}
    evaluations = [event.body for event in events if event.kind == "evaluation"]
    about["episodes"] = sum(len(row) for body in evaluations for row in body["episodes"])
    if events:
        about["last_event"] = datetime.fromtimestamp(events[-1].at).isoformat(timespec="seconds")
    if report is None:
        return about | {"state": "running" if is_locked(path) else "stopped"}
    test = report.best.test
    found = {"accuracy": test.accuracy.estimate, "cost_ratio": test.cost_ratio.estimate}
    return about | {"state": "finished", "policy_path": report.best.policy_path, **found}


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
