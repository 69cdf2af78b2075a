"""A run as plain data: what the archive screen shows, for programs."""

from __future__ import annotations

from typing import Any

from akv_rsi.insight.run import Run
from akv_rsi.insight.seen import SPLITS, Seen, Standing
from akv_rsi.policies.vocabulary import VERBS, capabilities_of


def listing(run: Run) -> dict[str, Any]:
    """Every policy of the run, those that were only screened too, with its scores by split."""
    return {
        "run_dir": str(run.path),
        "state": run.state,
        "budget": run.budget,
        "best": run.best and run.best.id,
        "policies": [_policy(run, seen) for seen in run.policies.values()],
    }


def _policy(run: Run, seen: Seen) -> dict[str, Any]:
    made = seen.candidate
    standings = {split: run.standing(seen, split) for split in SPLITS}
    return {
        "id": seen.id,
        "label": seen.label,
        "name": seen.spec.name,
        "kind": seen.spec.kind,
        "tunables": dict(seen.spec.tunables),
        "arm": seen.origin or None,
        "operator": made.operator or None,
        "round": made.born,
        "parents": list(made.parents),
        "verbs": verbs_of(seen),
        "fate": seen.fate or None,
        "splits": {split: _scores(s) for split, s in standings.items() if s is not None},
    }


def verbs_of(seen: Seen) -> list[str]:
    """The verbs of a program; none of another policy."""
    return sorted(capabilities_of(seen.spec.source) & VERBS) if seen.spec.kind == "program" else []


def _scores(standing: Standing) -> dict[str, Any]:
    score = standing.score
    (accuracy, *accuracy_ci), (ratio, *ratio_ci) = score.accuracy, score.cost_ratio
    return {
        "n": score.n,
        "accuracy": accuracy,
        "accuracy_ci": accuracy_ci,
        "cost_ratio": ratio,
        "cost_ratio_ci": ratio_ci,
        "kv_read_share": score.kv_read_share,
    }
