"""What one run hands on to the next: its best policies, its lessons, how operators fared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from akv_rsi.errors import StoreError
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.search.config import SEARCH
from akv_rsi.search.report import load_report
from akv_rsi.search.store import Store

MOST = 8  # policies


def inheritance(path: Path) -> dict[str, Any]:
    """The best policies of a finished run, the best first, its playbook and its bandit.

    The run may be someone else's: its policies are trusted by nobody, and are linted and screened
    like any other proposal. `StoreError` when the run is unfinished or cannot be read.
    """
    with Store.read(path) as store:
        report = load_report(store)
        if report is None:
            raise StoreError(f"{path} is not finished: a warm start needs a finished run")
        leaders = [advance.id for advance in reversed(report.progress) if advance.arm == SEARCH]
        wanted = list(dict.fromkeys([report.best.id, *leaders]))[:MOST]
        specs: dict[str, PolicySpec] = {}
        for event in store.events("proposals"):
            for row in event.body:
                if (spec := row["candidate"].spec).id in wanted and spec.kind == "program":
                    specs[spec.id] = replace(spec, trusted=False)
        memory: dict[str, Any] = next((event.body for event in store.events("memory")), {})
    return {
        "policies": [specs[identity] for identity in wanted if identity in specs],
        "playbook": memory.get("playbook", []),
        "bandit": memory.get("bandit", {}),
    }
