"""`akv-rsi bench serve`: what agents are measured by."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from serving import service

from akv_rsi.cli.bench_serve import _demonstrated
from akv_rsi.policies import library
from akv_rsi.server.bench import Measures, Setting, measure
from akv_rsi.tasks.cost import load_prices

PRICES = load_prices("claude")
PAGES = 512


def measured(policy: str, concurrency: int = 1, runs: int = 1, **tunables: Any) -> dict[str, Any]:
    spec = library.spec(policy, **tunables)
    editor = library.editor(policy, **tunables) if spec.kind == "editor" else None
    made, found = service(policy=None if editor else spec), Measures()
    trajectories = _demonstrated(("repo",), runs, PRICES)
    setting = Setting(448, answer=2, delay=0.0)
    asyncio.run(measure(made, trajectories, concurrency, setting, found, editor))
    made.runner._engine.check()
    return found.row(PAGES, PRICES) | {"first": len(found.first), "attended": found.usage.cached}


@pytest.fixture(scope="module")
def full() -> dict[str, Any]:
    return measured("full")


def test_every_call_is_timed_and_counted(full: dict[str, Any]) -> None:
    assert full["calls"] == full["first"] > 10
    assert full["ttft_p50_ms"] <= full["ttft_p95_ms"] < 1000 * full["seconds"]
    assert full["hit_share"] > 0.8
    assert 0 < full["pages_in_use_at_most"] < PAGES
    assert full["refreshed_tokens"] == 0


@pytest.mark.slow
def test_concurrency_changes_times_and_not_what_is_paid() -> None:
    alone, both = measured("full", runs=2), measured("full", concurrency=2, runs=2)
    assert alone["calls"] == both["calls"]
    assert alone["cost_per_run"] == pytest.approx(both["cost_per_run"], rel=0.05)


def test_dropping_reads_less_and_refreshing_is_counted(full: dict[str, Any]) -> None:
    found = measured("rolling_drop_refresh", keep=2)
    assert found["attended"] < 0.8 * full["attended"]
    assert found["refreshed_tokens"] > 0
    assert found["cost_per_run"] < full["cost_per_run"]


def test_summaries_are_paid_for_and_waited_for(full: dict[str, Any]) -> None:
    found = measured("summarise", limit=0.3, keep=2)
    assert found["calls"] > found["first"] == full["first"]  # a summary is no answer of its own
    assert found["hit_share"] < full["hit_share"]
