"""Policies that read attention: the engine measures it, and a conversation without it says so."""

from __future__ import annotations

import pytest

from akv_rsi.config import EngineConfig
from akv_rsi.errors import CapabilityError
from akv_rsi.policies import library
from akv_rsi.policies.open import open_policy
from akv_rsi.policies.vocabulary import capabilities_of, check_target
from akv_rsi.tasks.bench import Bench
from akv_rsi.tasks.cohort import run_cohort
from akv_rsi.tasks.cost import load_prices
from akv_rsi.tasks.load import load_agent
from akv_rsi.tasks.suites import load_suite, task_refs
from akv_rsi.types import Drop, Snapshot
from akv_rsi.visibility import Visibility


def test_the_engine_measures_what_they_read() -> None:
    agent = load_agent("reference", EngineConfig(threads=1, self_test=False))
    bench = Bench(agent, load_suite, load_prices("claude"))
    # Everything is below an epsilon of 0.2 after three turns; nothing below the least one.
    specs = [library.spec("attention_mass", epsilon=value) for value in (0.2, 0.0005)]
    rows = run_cohort(bench, specs, task_refs(("repo",), "train", 2), keep=True).episodes
    drops = [
        sum(isinstance(op, Drop) for e in row if e.trajectory for op in e.trajectory.ops)
        for row in rows
    ]
    assert all(episode.outcome == "done" for row in rows for episode in row)
    assert drops[0] > drops[1]


@pytest.mark.parametrize("name", library.MEASURED)
def test_without_measurements_they_are_refused(name: str) -> None:
    spec = library.spec(name)
    with pytest.raises(CapabilityError, match="attention"):
        check_target(capabilities_of(spec.source), "akv-sglang")
    with open_policy(spec) as policy, pytest.raises(CapabilityError, match="not measured"):
        policy.decide(Snapshot("a", 0, (), Visibility(), 100))
