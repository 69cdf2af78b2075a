"""The engine under test, and a tap on it: which logits it sampled from, and what it must sample.

With the tap, any sequence of requests becomes a forced continuation: the engine is made to answer
with given tokens, and every row of logits it would have sampled from is kept for comparison.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache
from typing import Any

import pytest
import torch
from torch import Tensor

from akv_rsi.config import EngineConfig
from akv_rsi.engine.engine import Engine
from akv_rsi.engine.model import Model
from akv_rsi.engine.request import Completion, Request

from .book import Op
from .convert import history_of
from .models import tiny
from .oracle import Oracle

PAGE = 4


def engine_for(name: str, **sizes: Any) -> Engine:
    """A cold engine on its own copy of the model ``name``; small pages, so that cases span many."""
    config = EngineConfig(**{"page_size": PAGE, "pages": 256, "self_test": False, **sizes})
    return Engine(Model.from_pretrained(deepcopy(tiny(name)), config), config)


class Call:
    """One request of ``new`` tokens after ``prompt``, both cut from ``tokens``.

    ``history`` is cut at the prompt's end too. ``rows`` [new, vocab] is filled by `forced`.
    """

    def __init__(
        self, tokens: Sequence[int], history: Sequence[Op], prompt: int, new: int, tenant: str = ""
    ) -> None:
        self.tokens = tuple(tokens[: prompt + new])
        self.history = tuple(op for op in history if op[1] <= prompt)
        self.prompt = prompt
        self.new = new
        self.tenant = tenant
        self.rows: list[Tensor] = []

    def request(self, number: int) -> Request:
        return Request(
            self.tokens[: self.prompt],
            history_of(self.history),
            max_new_tokens=self.new,
            seed=number,
            tenant=self.tenant,
        )

    def expected(self, name: str) -> Tensor:
        """The oracle's logits for every token that the engine samples."""
        return _oracle_logits(name, self.tokens[:-1], self.history)[self.prompt - 1 :]


@lru_cache(maxsize=256)
def _oracle_logits(name: str, tokens: tuple[int, ...], history: tuple[Op, ...]) -> Tensor:
    return Oracle(tiny(name)).run(tokens, history)


def forced(engine: Engine, calls: Sequence[Call]) -> list[Completion]:
    """Runs all calls in one batch; each answers with its own tokens. Checks the engine after."""
    with answering(calls) as sampled:
        completions = engine.generate([call.request(i) for i, call in enumerate(calls)])
    engine.check()
    for number, (call, completion) in enumerate(zip(calls, completions, strict=True)):
        call.rows = sampled[number]
        assert completion.tokens == call.tokens[call.prompt :]
    return completions


@contextmanager
def answering(calls: Sequence[Call]) -> Iterator[list[list[Tensor]]]:
    """Puts itself where the engine samples. A request's seed says which call it is."""
    sampled: list[list[Tensor]] = [[] for _ in calls]

    def answer(logits: Tensor, samplings: Sequence[Any]) -> list[int]:
        tokens = []
        for row, sampling in zip(logits, samplings, strict=True):
            call, done = calls[sampling.seed], sampled[sampling.seed]
            tokens.append(call.tokens[call.prompt + len(done)])
            done.append(row.clone())
        return tokens

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("akv_rsi.engine.engine.sample", answer)
        yield sampled


def rows_of(call: Call) -> Tensor:
    """The logits a call sampled from, [new, vocab]."""
    return torch.stack(call.rows).cpu()
