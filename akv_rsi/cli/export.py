"""`akv-rsi export`: a found policy as a plain Python module."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from akv_rsi.cli.names import candidate_of
from akv_rsi.cli.output import print_json
from akv_rsi.errors import StoreError
from akv_rsi.policies.export import Provenance, Score, export_module
from akv_rsi.policies.parity import ParityProof
from akv_rsi.policies.vocabulary import capabilities_of, check_target
from akv_rsi.search.candidate import Candidate
from akv_rsi.search.config import recorded_config
from akv_rsi.search.report import SearchReport, load_report
from akv_rsi.search.store import Store
from akv_rsi.tasks.load import find_model


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
    with Store.read(run) as store:
        report = load_report(store)
        if report is None and candidate is None:
            raise StoreError(
                f"{run} is not finished: continue it with --resume, or name a candidate"
            )
        identity = candidate or (report.best.id if report else "")
        found = candidate_of(store, identity)
        proof = next((e.body for e in store.events("parity") if e.key == identity), None)
        config = store.config
    capabilities = capabilities_of(found.spec.source)
    check_target(capabilities, target)
    module = export_module(found.spec, _provenance(run, found, config, report, proof))
    if output is not None:
        _write(output, module)
    if json:
        about = {"id": identity, "path": str(output) if output else None}
        print_json(about | {"capabilities": sorted(capabilities), "tunables": found.values})
    elif output is None:
        sys.stdout.write(module)
    else:
        print(f"wrote {output}")


def _provenance(
    run: Path,
    candidate: Candidate,
    config: dict[str, Any],
    report: SearchReport | None,
    proof: dict[str, Any] | None,
) -> Provenance:
    made = f"{candidate.operator} in round {candidate.born}"
    parents = f", from {', '.join(candidate.parents)}" if candidate.parents else ""
    best = report.best if report is not None and report.best.id == candidate.id else None
    rows = [(name, getattr(best, name)) for name in ("train", "validation", "test") if best]
    scores = tuple(
        Score(name, row.accuracy[0], row.accuracy[1:], row.cost_ratio[0], row.cost_ratio[1:], row.n)
        for name, row in rows
    )
    on = recorded_config(config)
    traces = "".join(f" --traces {path}" for path in on.traces)
    return Provenance(
        origin=f"run {run.name}, seed {on.seed}, by {made}{parents}",
        command=f"akv-rsi search --budget {on.budget:g} --seed {on.seed}{traces}",
        reliable_span=on.span if on.traces else find_model(on.model)[1].reliable_span,
        found_on=on.found_on,
        measure=on.measure,
        scores=scores,
        parity=None if proof is None else ParityProof(**proof),
    )


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error
