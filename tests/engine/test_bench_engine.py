"""The benchmark measures what it says, on a model small enough for a test."""

from __future__ import annotations

from copy import deepcopy

import pytest

from akv_rsi.config import EngineConfig
from akv_rsi.engine.bench import edits, generation, metadata, run, shape
from akv_rsi.engine.bench.arms import ratio, take_turns
from akv_rsi.engine.engine import Engine
from akv_rsi.engine.model import Model

from .tiny import VOCAB, tiny_llama


def tiny_pair(config: EngineConfig, seed: int) -> shape.Pair:
    stock = deepcopy(tiny_llama())
    stock.config.pad_token_id = 0
    return shape.Pair(stock, Engine(Model.from_pretrained(deepcopy(stock), config), config))


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, sizes in {
        shape: {"VOCABULARY": VOCAB},
        edits: {
            "CONTEXT": 192,
            "BLOCKS": 4,
            "BLOCK": 24,
            "FIRST": 24,
            "STRIDE": 42,
            "REFRESHED": 2,
            "STEPS": 4,
        },
        generation: {"CONTEXT": 16, "NEW_TOKENS": 5, "PREFILL": 32},
        metadata: {"LENGTH": 2048, "EDGES": 8, "RANGES": 8, "ROUNDS": 3},
        run: {"smollm2_pair": tiny_pair, "BATCHES": (1, 2), "STEP_CONTEXT": 16},
    }.items():
        for name, value in sizes.items():
            monkeypatch.setattr(module, name, value)


@pytest.mark.usefixtures("_small")
def test_every_figure_is_there() -> None:
    said: list[str] = []
    found = run.bench_engine(["float32"], [1], rounds=1, say=said.append)
    (row,) = found["runs"]
    assert said == ["float32, 1 threads"]
    for name in ("decode_1", "decode_2", "prefill"):
        low, high = row[name]["range"]
        assert 0 < low <= row[name]["ratio"] <= high
    assert row["edits"]["pages_of_a_repos"] == 0
    assert row["edits"]["trim_to_drop"]["ratio"] > 0
    decode = row["steps"][2]["decode"]
    assert sum(decode[part] for part in ("model", "attention", "gather", "python")) == (
        pytest.approx(decode["all"], abs=0.01)
    )
    assert 0 < found["metadata"]["match_ms"] < 100


def test_arms_take_turns_and_warm_up_once() -> None:
    order: list[str] = []

    def arm(name: str) -> float:
        order.append(name)
        return float(len(order))

    seconds = take_turns({"a": lambda: arm("a"), "b": lambda: arm("b")}, 2)
    assert order == ["b", "a", "a", "b", "b", "a"]
    assert seconds == {"a": [3, 6], "b": [4, 5]}
    assert ratio(seconds["b"], seconds["a"]) == {
        "ratio": round((4 / 3 + 5 / 6) / 2, 3),
        "range": [0.833, 1.333],
        "rounds": 2,
    }
