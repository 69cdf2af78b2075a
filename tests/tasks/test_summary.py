"""Rows: pairing, charging and what is left out."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from akv_rsi.errors import TaskError
from akv_rsi.tasks.cost import PRESETS
from akv_rsi.tasks.episode import Episode, Outcome, TaskRef
from akv_rsi.tasks.summary import summarise
from akv_rsi.types import Usage

CLAUDE = PRESETS["claude"]


def episode(
    seed: int,
    success: bool = True,
    cost: float = 10.0,
    outcome: Outcome = "done",
    in_span: bool = True,
) -> Episode:
    usage = Usage(calls=1, cached=50, output=1)
    return Episode(TaskRef("toy", seed, "test"), "p", success, outcome, cost, usage, in_span)


def test_a_row_by_hand() -> None:
    full = [episode(i, cost=10.0 * (i + 1), in_span=i % 2 == 0) for i in range(4)]
    ours = [replace(e, cost=e.cost / 2, success=e.task.seed != 1) for e in full]
    row = summarise(ours, full, CLAUDE)
    assert row.n == 4
    assert row.accuracy.estimate == 0.75
    assert row.cost_ratio == pytest.approx((0.5, 0.5, 0.5))
    assert row.kv_read_share == pytest.approx(0.5)
    assert row.in_span is not None
    assert row.beyond_span is not None
    assert (row.in_span.estimate, row.beyond_span.estimate) == (1.0, 0.5)


def test_lost_tasks_are_no_tasks() -> None:
    full = [episode(0), episode(1, outcome="infrastructure", success=False), episode(2)]
    ours = [episode(0, outcome="infrastructure", success=False), episode(1), episode(2, cost=5)]
    row = summarise(ours, full, CLAUDE)
    assert (row.n, row.excluded) == (1, 2)
    assert row.accuracy.estimate == 1.0
    assert row.cost_ratio.estimate == 0.5


def test_a_policy_error_is_a_failed_task_and_never_cheap() -> None:
    full = [episode(0), episode(1)]
    ours = [episode(0, success=False, outcome="policy_error", cost=0.1), episode(1, cost=8)]
    row = summarise(ours, full, CLAUDE)
    assert (row.n, row.failures) == (2, 1)
    assert row.accuracy.estimate == 0.5
    assert row.cost_ratio.estimate == pytest.approx(18 / 20)


def test_the_span_is_told_by_keep_everything() -> None:
    full = [episode(0, in_span=False), episode(1)]
    ours = [episode(0, in_span=True), episode(1)]
    row = summarise(ours, full, CLAUDE)
    assert row.in_span is not None
    assert row.beyond_span is not None
    assert summarise(ours[1:], full[1:], CLAUDE).beyond_span is None


def test_fixed_sequences() -> None:
    full = [episode(0), episode(1)]
    assert summarise(full, full, CLAUDE, fixed=(8, 20)).fixed_ratio == pytest.approx(0.4)
    assert summarise(full, full, CLAUDE).fixed_ratio is None


def test_the_json_row_has_the_documented_keys() -> None:
    full = [episode(0), episode(1)]
    row = json.loads(json.dumps(summarise(full, full, CLAUDE).to_json()))
    assert set(row) >= {
        "accuracy",
        "accuracy_ci",
        "cost_ratio",
        "cost_ratio_ci",
        "kv_read_share",
        "n",
    }
    assert row["accuracy_ci"][0] <= row["accuracy"] <= row["accuracy_ci"][1]
    assert row["cost_ratio"] == 1.0
    assert row["beyond_span_accuracy"] is None


def test_nothing_left_says_why() -> None:
    lost = [replace(episode(0, outcome="infrastructure"), detail="the environment raised X")]
    with pytest.raises(TaskError, match="the environment raised X"):
        summarise(lost, lost, CLAUDE)


def test_rows_of_other_tasks_are_refused() -> None:
    with pytest.raises(ValueError, match="same tasks"):
        summarise([episode(0)], [episode(1)], CLAUDE)
