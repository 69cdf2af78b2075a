"""`akv-rsi doctor`: this machine, and what the engine can run on it exactly."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rich.console import Console
from rich.table import Table

from akv_rsi.cli.output import print_json
from akv_rsi.config import EngineConfig
from akv_rsi.tasks.load import REFERENCE
from akv_rsi.tasks.reference.model import load_reference

PACKAGES = (
    "akv-rsi",
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "numpy",
    "triton",
    "optuna",
    "pydantic-monty",
    "libcst",
)


def doctor(*, model: str | None = None, json: bool = False) -> None:
    """Check this machine and the engine on it.

    Every architecture is tried on a tiny random model: logits against stock eager attention, and
    keys turned by a delta against recomputed ones. One that fails is never run, and says why.
    Example: ``akv-rsi doctor --model reference``.

    Args:
        model: Test this model instead: ``reference``, a folder, a .gguf file, or a hub id.
        json: Print the report as JSON.
    """
    found = report(model)
    if json:
        print_json(found)
        return
    console = Console()
    machine = Table("package", "version", title="This machine", title_justify="left")
    for name, value in found["environment"].items():
        machine.add_row(name, str(value))
    console.print(machine, _verdicts(found["architectures"]))


def report(model: str | None = None) -> dict[str, Any]:
    """Versions, and verdicts of the self-test: on ``model``, or on every known architecture.

    Raises `ModelLoadError` or `UnsupportedModel` when ``model`` cannot be used.
    """
    from akv_rsi.engine.architectures import Verdict, survey
    from akv_rsi.engine.model import load_model

    if model is None:
        verdicts = list(survey())
    else:
        path = load_reference()[0] if model == REFERENCE else model
        proof = load_model(path, EngineConfig()).proof
        verdicts = [Verdict(model, True, proof.logits, proof.keys)]
    return {
        "environment": environment(),
        "architectures": [asdict(verdict) for verdict in verdicts],
    }


def environment() -> dict[str, Any]:
    """Versions of what results depend on."""
    import torch

    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        **{name: _version(name) for name in PACKAGES},
        "cuda": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _verdicts(rows: list[dict[str, Any]]) -> Table:
    table = Table("model", "exact", "logits", "keys", "why not", title="Self-test")
    table.title_justify = "left"
    for row in rows:
        figures = [f"{row[name]:.1e}" if row["supported"] else "-" for name in ("logits", "keys")]
        table.add_row(
            row["name"], "yes" if row["supported"] else "refused", *figures, row["reason"]
        )
    return table
