"""The engine on a GPU gives what it gives on a processor."""

from __future__ import annotations

from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

import akv_rsi.tasks
from akv_rsi.config import EngineConfig
from akv_rsi.engine.engine import Engine
from akv_rsi.engine.gpu.turns import find_pairing, spread
from akv_rsi.engine.model import Model, load_model
from akv_rsi.engine.request import Request
from akv_rsi.types import OpHistory

from .book import Op
from .convert import converted, history_of
from .harness import Call, engine_for, forced, rows_of
from .histories import TOLERANCE, distance, draw, draw_group
from .models import CONFIGS, VOCAB, tiny
from .paged import DEVICE, paged  # noqa: F401  # a fixture

REFERENCE = Path(akv_rsi.tasks.__file__).parent / "reference" / "model"


@pytest.mark.parametrize("name", ["llama", "phi3-partial", "glm4"])
def test_tables_turn_as_the_architecture_does(name: str) -> None:
    rotary = Model.from_pretrained(deepcopy(tiny(name)), EngineConfig(self_test=False)).rotary
    vectors = torch.randn(3, 7, 16, generator=torch.Generator().manual_seed(0))
    deltas = np.array([0, 1, -5, 300, -4000, 17, 2])
    pairing, angles = find_pairing(rotary, "", 16), rotary.angles(deltas, "")
    cos, sin = spread(pairing, angles)
    ours = vectors * cos + vectors[..., pairing.partner] * sin
    assert float((ours - rotary.turn(vectors, angles)).abs().max()) < 1e-5


@lru_cache
def reference(device: str) -> Model:
    return load_model(REFERENCE, EngineConfig(device=device))  # type: ignore[arg-type]


def engines(name: str, **sizes: Any) -> list[Engine]:
    """One on a processor, one on the GPU."""
    made = []
    for device in ("cpu", "cuda"):
        config = EngineConfig(device=device, **{"page_size": 4, "pages": 512, **sizes})  # type: ignore[arg-type]
        if name == "reference":
            model = reference(device)
        else:
            model = Model.from_pretrained(deepcopy(tiny(name)), config)
        made.append(Engine(model, config))
    return made


TEXT = tuple((11 * i + i * i // 3) % VOCAB for i in range(60))
# Every other pair of tokens goes, and what stays closes up: ten runs.
CROWDED: tuple[Op, ...] = (("drop", 50, tuple((i, i + 2) for i in range(4, 44, 4))), ("repos", 50))


@pytest.mark.usefixtures("paged")
@pytest.mark.parametrize("cached", [False, True])
def test_many_short_runs_are_read_from_dense_pages(
    cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decoded from copies made in the pass of the first token, or before it, if that is a step."""
    monkeypatch.setattr("akv_rsi.engine.gpu.seats.MANY_RUNS", 8)
    monkeypatch.setattr("akv_rsi.engine.gpu.seats.KEYS_REPAID", 1)
    engine = engine_for("llama3", device=DEVICE, max_batch=2)
    if cached:
        forced(engine, [Call(TEXT, (), 50, 1)])
    calls = [Call(TEXT, CROWDED, 51, 4), Call(TEXT, (), 52, 2)]
    forced(engine, calls)
    assert engine.stats().gathered == 30
    short = Call(TEXT, CROWDED, 51, 2)
    forced(engine, [short])
    assert engine.stats().gathered == 30  # two steps do not repay it
    for call in (*calls, short):
        assert distance(rows_of(call), call.expected("llama3")) <= TOLERANCE


@pytest.mark.usefixtures("paged")
def test_runs_that_do_not_fit_the_tables_are_read_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("akv_rsi.engine.gpu.tables.TURNS", 8)
    engine = engine_for("llama3", device=DEVICE, max_batch=2)
    calls = [Call(TEXT, CROWDED, 51, 4), Call(TEXT, (), 52, 3)]
    forced(engine, calls)
    assert engine.stats().gathered == 0
    for call in calls:
        assert distance(rows_of(call), call.expected("llama3")) <= TOLERANCE


@pytest.mark.usefixtures("paged")
@pytest.mark.parametrize("many", [64, 2])
def test_tables_learn_where_survivors_moved(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read from copies and what is read in place."""
    monkeypatch.setattr("akv_rsi.engine.gpu.seats.MANY_RUNS", many)
    engine = engine_for("phi3-partial", device=DEVICE, max_batch=4, restore_passes=0)
    holes: tuple[Op, ...] = (("drop", 44, tuple((i, i + 3) for i in range(4, 40, 4))),)
    moved = (*holes, ("repos", 44), ("refresh", 44, ((31, 32), (39, 42))))
    forced(engine, [Call(TEXT, moved, 50, 1)])
    calls = [Call(TEXT, moved, 51, 8), Call(TEXT, moved, 50, 7)]
    forced(engine, calls)
    assert engine.stats().relocated > 0
    assert (engine.stats().gathered > 0) == (many == 2)
    for call in calls:
        assert distance(rows_of(call), call.expected("phi3-partial")) <= TOLERANCE


@pytest.mark.gpu
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("repos_mode", ["view", "copy"])
def test_logits_under_random_histories(name: str, repos_mode: str) -> None:
    processor, gpu = engines(name, repos_mode=repos_mode)
    rng = Random(name)
    for _ in range(4):
        tokens = [rng.randrange(VOCAB) for _ in range(90)]
        history = history_of(draw(rng, len(tokens), 4)[0])
        cuts = sorted(rng.sample(range(1, 90), 5))
        expected = processor.forced(tokens, history, cuts)
        assert float((gpu.forced(tokens, history, cuts) - expected).abs().max()) < 1e-3
        assert float((gpu.logits(tokens, history) - expected).abs().max()) < 1e-3


@pytest.mark.parametrize("name", ["llama3", "gpt-oss", "gemma2"])
def test_attention_is_measured_alike(name: str, request: pytest.FixtureRequest) -> None:
    processor = engine_for(name)
    request.getfixturevalue("paged")
    parts = ((0, 10), (10, 30), (30, 51))
    asked = Request(TEXT[:51], history_of(CROWDED), max_new_tokens=3, attention=parts)
    plain = Request(TEXT[:40], max_new_tokens=3)
    (expected, _), (measured, _) = (
        engine.generate([asked, plain]) for engine in (processor, engine_for(name, device=DEVICE))
    )
    assert measured.tokens == expected.tokens
    assert measured.attention == pytest.approx(expected.attention, abs=1e-4)
    assert measured.attention[1] > 0


def test_int8_kv_is_the_same_on_both(request: pytest.FixtureRequest) -> None:
    """Codes and scales are written alike; the calls move, refresh and decode beside each other."""
    sizes: dict[str, Any] = {"kv_dtype": "int8", "max_batch": 2, "restore_passes": 0}
    processor = engine_for("llama3", **sizes)
    request.getfixturevalue("paged")
    request.getfixturevalue("monkeypatch").setattr("akv_rsi.engine.gpu.seats.MANY_RUNS", 2)
    gpu = engine_for("llama3", device=DEVICE, **sizes)
    history = (*CROWDED, ("refresh", 50, ((44, 46),)))
    rows = []
    for engine in (processor, gpu):
        calls = [Call(TEXT, history, 51, 3), Call(TEXT, (), 52, 2)]
        forced(engine, calls)
        rows.append(torch.cat([rows_of(call) for call in calls]))
    assert gpu.stats().gathered == 0
    assert float((rows[0] - rows[1]).abs().max()) < 1e-2  # a code may be off by one
    exact = torch.cat([call.expected("llama3") for call in calls])
    assert 1e-3 < float((rows[1] - exact).abs().max()) < 0.5


def test_random_sessions_with_dense_pages(request: pytest.FixtureRequest) -> None:
    """As below on any machine, with a tiny model; two runs are many."""
    config = {"page_size": 4, "pages": 80, "max_batch": 2, "chunk_tokens": 32}
    processor = engine_for("llama3", **config)
    request.getfixturevalue("paged")
    patch = request.getfixturevalue("monkeypatch")
    patch.setattr("akv_rsi.engine.gpu.seats.MANY_RUNS", 2)
    paged_engine = engine_for("llama3", device=DEVICE, **config)
    _converse([processor, paged_engine], Random(1), talks=2, length=30, vocabulary=VOCAB)
    assert paged_engine.stats().gathered > 0


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(4))
def test_same_greedy_tokens_in_random_sessions(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Conversations of several calls with ops between them; six at a time, some leave early."""
    if seed % 2:
        monkeypatch.setattr("akv_rsi.engine.gpu.seats.MANY_RUNS", 2)
    made = engines("reference", page_size=16, max_batch=8, chunk_tokens=64)
    _converse(made, Random(seed), talks=6, length=300, vocabulary=512)


def _converse(made: list[Engine], rng: Random, talks: int, length: int, vocabulary: int) -> None:
    conversations = [_Talk(rng, length, vocabulary) for _ in range(talks)]
    for _ in range(5):
        requests = [talk.request(rng.randrange(1, 12)) for talk in conversations]
        expected, answers = (engine.generate(requests) for engine in made)
        assert [a.tokens for a in answers] == [a.tokens for a in expected]
        made[1].check()
        for talk, answer in zip(conversations, answers, strict=True):
            talk.go_on(rng, answer.tokens)


class _Talk:
    def __init__(self, rng: Random, length: int, vocabulary: int) -> None:
        self._vocabulary = vocabulary
        self.tokens = [rng.randrange(vocabulary) for _ in range(length)]
        self.ops, self.book = draw(rng, length, 3)

    def request(self, new: int) -> Request:
        return Request(self.tokens, OpHistory(converted(self.ops)), max_new_tokens=new)

    def go_on(self, rng: Random, answer: tuple[int, ...]) -> None:
        """What was answered, new tokens, and sometimes ops behind them."""
        more = [*answer, *(rng.randrange(self._vocabulary) for _ in range(rng.randrange(1, 40)))]
        self.tokens += more
        self.book.append(len(more))
        if rng.random() < 0.7:
            ops = draw_group(rng, self.book)
            self.ops += ops
            self.book.apply(ops)
