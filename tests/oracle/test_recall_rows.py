"""The rows that recall reads are those of stock attention with an explicit mask.

On a tiny model always; on a pretrained one where ``AKV_PRETRAINED`` names its folder.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from akv_rsi import types
from akv_rsi.config import EngineConfig
from akv_rsi.engine.engine import Engine
from akv_rsi.engine.model import load_model
from akv_rsi.engine.request import Request
from akv_rsi.tasks.agent import ChatFormat
from akv_rsi.tasks.environment import Message
from akv_rsi.tasks.pretrained import TemplateFormat
from akv_rsi.tasks.recall.transcript import Recall, recall
from akv_rsi.tasks.recall.variants import STUDY, VARIANTS, Prompt

from .book import Op
from .harness import engine_for
from .models import tiny
from .oracle import Oracle

BY_OPS = ("full", "drop", "drop+repos", "drop+refresh", "drop+refresh+repos", *STUDY)
PRETRAINED = os.environ.get("AKV_PRETRAINED", "")
TAIL = 3


class Letters:
    """One token a letter, of few."""

    stop = frozenset({2})
    reliable_span = max_new_tokens = max_summary_tokens = 4096

    def encode(self, message: Message) -> list[int]:
        return [1, *(3 + ord(letter) % 37 for letter in message.text), 2]

    def prompt(self) -> list[int]:
        return [1]

    def decode(self, tokens: Sequence[int]) -> str:
        """A letter that is no digit for most: only the number of letters counts here."""
        return "".join(chr(48 + (t - 3 - 11) % 37) if t > 2 else " " for t in tokens)

    def summary_request(self) -> Message:
        return Message("user", "")


def plain(history: types.OpHistory) -> list[Op]:
    """Ops in the oracle's words."""
    return [
        (
            type(op).__name__.lower(),
            op.boundary,
            *([] if isinstance(op, types.Repos) else [op.ranges]),
        )
        for op in history
    ]  # type: ignore[misc]


def check(engine: Engine, stock: Any, chat: ChatFormat, made: Recall, name: str) -> float:
    """The largest difference of the last rows of two questions."""
    prompt: Prompt = {**VARIANTS, **STUDY}[name](made, chat, lambda _: Message("assistant", ""))
    engine.reset()
    questions = [(*chat.encode(fact.question), *chat.prompt()) for fact in made.facts[:2]]
    engine.next_logits(Request((*prompt.tokens, questions[0][0]), prompt.history))
    asked = [(*prompt.tokens, *question) for question in questions]
    tails = engine.tails([Request(tokens, prompt.history) for tokens in asked], TAIL)
    worst = 0.0
    for tokens, tail in zip(asked, tails, strict=True):
        expected = Oracle(stock).run(tokens, plain(prompt.history))[-TAIL:]
        worst = max(worst, float((tail - expected).abs().max()))
    return worst


@pytest.mark.parametrize("name", BY_OPS)
def test_rows_of_a_tiny_model(name: str) -> None:
    made = recall(3, 600, Letters())
    assert check(engine_for("llama", pages=512), tiny("llama"), Letters(), made, name) < 1e-4


@pytest.mark.slow
@pytest.mark.skipif(not PRETRAINED, reason="set AKV_PRETRAINED to a model's folder")
@pytest.mark.parametrize("name", BY_OPS)
def test_rows_of_a_pretrained_model(name: str) -> None:
    from transformers import AutoModelForCausalLM

    folder, config = Path(PRETRAINED), EngineConfig(pages=256, working_set_mib=0)
    chat = TemplateFormat.load(folder, 2048)
    stock = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    worst = check(
        Engine(load_model(folder, config), config), stock, chat, recall(3, 500, chat), name
    )
    print(f"{name}: {worst:.1e}")
    assert worst < 2e-4
