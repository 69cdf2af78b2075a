"""`akv-rsi export`: a found policy as a plain Python module."""

from __future__ import annotations

import sys
from pathlib import Path

from akv_rsi.cli.output import print_json
from akv_rsi.insight.module import exportable, module_of, write_module
from akv_rsi.insight.run import Run
from akv_rsi.policies.vocabulary import capabilities_of


def export(
    run: Path,
    *,
    candidate: str | None = None,
    output: Path | None = None,
    target: str = "engine",
    json: bool = False,
) -> None:
    """Write a run's policy as a module that needs nothing but akv-rsi to import.

    Its numbers are frozen; its docstring holds where it comes from, its scores with intervals, and
    the proof that it decides alike in the sandbox and in plain Python.

    Args:
        run: The directory of a finished run.
        candidate: Another candidate than the best one, by its id.
        output: The file to write; without it the module goes to stdout.
        target: Refuse a policy that this target cannot run: engine, akv-sglang or any.
        json: Print what was written as JSON.
    """
    found = Run(run)
    seen = exportable(found, candidate)
    module = module_of(found, seen, target)
    if output is not None:
        write_module(output, module)
    if json:
        about = {"id": seen.id, "path": str(output) if output else None}
        needs = sorted(capabilities_of(seen.spec.source))
        print_json(about | {"capabilities": needs, "tunables": seen.candidate.values})
    elif output is None:
        sys.stdout.write(module)
    else:
        print(f"wrote {output}")
