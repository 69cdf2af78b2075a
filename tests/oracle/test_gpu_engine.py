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

from .convert import converted, history_of
from .histories import draw, draw_group
from .models import CONFIGS, VOCAB, tiny

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


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(3))
def test_same_greedy_tokens_in_random_sessions(seed: int) -> None:
    """Conversations of several calls with ops between them; six at a time, some leave early."""
    processor, gpu = engines("reference", page_size=16, max_batch=8, chunk_tokens=64)
    rng = Random(seed)
    talks = [_Talk(rng, 300) for _ in range(6)]
    for _ in range(5):
        requests = [talk.request(rng.randrange(1, 12)) for talk in talks]
        answers = processor.generate(requests)
        assert [a.tokens for a in gpu.generate(requests)] == [a.tokens for a in answers]
        gpu.check()
        for talk, answer in zip(talks, answers, strict=True):
            talk.go_on(rng, answer.tokens)


class _Talk:
    def __init__(self, rng: Random, length: int) -> None:
        self.tokens = [rng.randrange(512) for _ in range(length)]
        self.ops, self.book = draw(rng, length, 3)

    def request(self, new: int) -> Request:
        return Request(self.tokens, OpHistory(converted(self.ops)), max_new_tokens=new)

    def go_on(self, rng: Random, answer: tuple[int, ...]) -> None:
        """What was answered, new tokens, and sometimes ops behind them."""
        more = [*answer, *(rng.randrange(512) for _ in range(rng.randrange(1, 40)))]
        self.tokens += more
        self.book.append(len(more))
        if rng.random() < 0.7:
            ops = draw_group(rng, self.book)
            self.ops += ops
            self.book.apply(ops)
