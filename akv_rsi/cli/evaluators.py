"""The evaluator a command asks for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

from akv_rsi.config import EngineConfig
from akv_rsi.tasks.cost import load_prices
from akv_rsi.tasks.evaluator import Evaluator, EvaluatorConfig
from akv_rsi.tasks.load import find_model, load_agent
from akv_rsi.tasks.suites import load_suite


def processes(workers: int | None) -> int:
    """How many worker processes: as asked, else one per core."""
    return os.cpu_count() or 1 if workers is None else workers


def agent_evaluator(
    suites: Sequence[str], model: str, prices: str, budget: float, workers: int | None
) -> Evaluator:
    """An agent on suites; everything that was asked for is looked at before processes start."""
    for name in suites:
        load_suite(name)
    find_model(model)
    return Evaluator(
        partial(load_agent, model, EngineConfig(threads=1)),
        load_prices(prices),
        EvaluatorConfig(workers=processes(workers), budget=budget),
    )
