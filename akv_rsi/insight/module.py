"""A policy of a run as a plain Python module, with all that is known of it."""

from __future__ import annotations

from pathlib import Path

from akv_rsi.errors import ConfigError, StoreError
from akv_rsi.insight.run import Run
from akv_rsi.insight.seen import SPLITS, Seen
from akv_rsi.policies.export import Provenance, Score, export_module
from akv_rsi.policies.parity import ParityProof
from akv_rsi.policies.vocabulary import capabilities_of, check_target


def exportable(run: Run, identity: str | None) -> Seen:
    """The candidate of that id, or the best of a finished run. `ConfigError`, `StoreError`."""
    if identity is None:
        if not run.best_id:
            raise StoreError(
                f"{run.path} is not finished: continue it with --resume, or name a candidate"
            )
        identity = run.best_id
    seen = run.policies.get(identity)
    if seen is None or not seen.arms:
        raise ConfigError(f"{run.path} ran no candidate {identity!r}")
    return seen


def module_of(run: Run, seen: Seen, target: str = "engine") -> str:
    """The module's text; `CapabilityError` when ``target`` cannot run the policy."""
    check_target(capabilities_of(seen.spec.source), target)
    return export_module(seen.spec, _provenance(run, seen))


def write_module(path: Path, text: str) -> None:
    """Writes it; `StoreError` when it cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error


def write_new(path: Path, text: str) -> None:
    """Writes a file that is not there yet; `StoreError` when it is, or cannot be written."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise StoreError(f"{path} exists: choose another name") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error


def command_of(run: Run) -> str:
    """The command that repeats the search."""
    config = run.config
    traces = "".join(f" --traces {path}" for path in config.traces)
    return f"akv-rsi search --budget {config.budget:g} --seed {config.seed}{traces}"


def _provenance(run: Run, seen: Seen) -> Provenance:
    made = f"{seen.candidate.operator} in round {seen.candidate.born}"
    parents = seen.candidate.parents
    made += f", from {', '.join(parents)}" if parents else ""
    best = run.best_id == seen.id
    proofs = (step.body for step in run.steps if (step.kind, step.key) == ("parity", seen.id))
    proof = next(proofs, None)
    return Provenance(
        origin=f"run {run.name}, seed {run.config.seed}, by {made}",
        command=command_of(run),
        reliable_span=run.setting().reliable_span,
        found_on=run.config.found_on,
        measure=run.config.measure,
        scores=_scores(run, seen) if best else (),
        parity=None if proof is None else ParityProof(**proof),
    )


def _scores(run: Run, seen: Seen) -> tuple[Score, ...]:
    found = []
    for split in SPLITS:
        if standing := run.standing(seen, split):
            score = standing.score
            (a, *accuracy), (r, *ratio) = score.accuracy, score.cost_ratio
            found.append(Score(split, a, (*accuracy,), r, (*ratio,), score.n))  # type: ignore[arg-type]
    return tuple(found)
