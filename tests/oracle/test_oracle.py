"""The oracle proves itself against unmodified transformers, and its histories against faults."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
import torch
from torch import Tensor

from .book import Op, runs
from .histories import TELLING, TOLERANCE, distance, effects, telling_case
from .models import CONFIGS, VOCAB, tiny
from .oracle import Oracle

every_model = pytest.mark.parametrize("name", CONFIGS)


def text(length: int = 40, seed: int = 1) -> list[int]:
    rng = Random(seed)
    return [rng.randrange(VOCAB) for _ in range(length)]


def stock(name: str, tokens: Sequence[int]) -> Tensor:
    """Unmodified transformers: one forward pass without a cache."""
    with torch.no_grad():
        return tiny(name)(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]  # type: ignore[no-any-return]


def forget(boundary: int, dropped: Sequence[int]) -> list[Op]:
    rest = [i for i in range(dropped[0], boundary) if i not in dropped]
    return [
        ("drop", boundary, runs(dropped)),
        ("repos", boundary),
        ("refresh", boundary, runs(rest)),
    ]


@every_model
@pytest.mark.parametrize("cut", [40, 7])
def test_without_ops_it_is_stock_transformers(name: str, cut: int) -> None:
    tokens, oracle = text(), Oracle(tiny(name))
    logits = torch.cat([oracle.append(tokens[at : at + cut]) for at in range(0, 40, cut)])
    assert distance(logits, stock(name, tokens)) <= TOLERANCE / 5


@every_model
def test_forget_is_stock_transformers_on_the_trimmed_prompt(name: str) -> None:
    tokens, dropped = text(), [*range(4, 9), 15, *range(20, 23)]
    logits = Oracle(tiny(name)).run(tokens, forget(30, dropped))
    trimmed = [token for i, token in enumerate(tokens) if i not in dropped]
    assert distance(logits[30:], stock(name, trimmed)[30 - len(dropped) :]) <= TOLERANCE


@every_model
def test_drop_alone_is_not_forget(name: str) -> None:
    tokens, dropped = text(), [*range(4, 9), *range(20, 23)]
    whole = forget(30, dropped)
    forgotten = Oracle(tiny(name)).run(tokens, whole)[30:]
    for part in (whole[:1], whole[:2], [whole[0], whole[2]]):
        assert distance(Oracle(tiny(name)).run(tokens, part)[30:], forgotten) > TELLING


def test_forgetting_twice_equals_forgetting_once() -> None:
    tokens = text()
    twice = [*forget(20, [5, 6]), ("drop", 30, ((12, 15),)), ("repos", 30)]
    twice.append(("refresh", 30, ((15, 30),)))
    trimmed = [token for i, token in enumerate(tokens) if i not in {5, 6, 12, 13, 14}]
    got = Oracle(tiny("llama")).run(tokens, twice)
    assert distance(got[30:], stock("llama", trimmed)[25:]) <= TOLERANCE


@pytest.mark.parametrize(
    "idle",
    [
        [("repos", 20)],
        [("refresh", 20, ((0, 20),))],
        [("repos", 20), ("refresh", 20, ((3, 9), (11, 20)))],
        [("drop", 40, ((3, 9),)), ("repos", 40)],
    ],
)
def test_ops_that_change_nothing_change_nothing(idle: list[Op]) -> None:
    tokens = text()
    logits = Oracle(tiny("llama3")).run(tokens, idle)
    assert distance(logits, stock("llama3", tokens)) <= TOLERANCE / 5


def test_restore_undoes_a_drop_for_later_queries_only() -> None:
    """The queries in between never saw the span, and what they wrote says so."""
    tokens = text()
    history = [("drop", 20, ((4, 12),)), ("restore", 30, ((4, 12),))]
    logits = Oracle(tiny("qwen2")).run(tokens, history)
    assert distance(logits[:20], stock("qwen2", tokens)[:20]) <= TOLERANCE / 5
    assert distance(logits[20:30], stock("qwen2", tokens)[20:30]) > TELLING
    renewed = [*history, ("refresh", 30, ((20, 30),))]
    healed = Oracle(tiny("qwen2")).run(tokens, renewed)
    assert distance(healed[30:], stock("qwen2", tokens)[30:]) <= TOLERANCE


def test_a_restored_token_returns_to_the_place_a_repos_gives_it() -> None:
    tokens = text()
    history = [
        ("drop", 20, ((4, 12),)),
        ("repos", 20),
        ("restore", 30, ((4, 12),)),
        ("repos", 30),
        ("refresh", 30, ((20, 30),)),
    ]
    logits = Oracle(tiny("gemma3")).run(tokens, history)
    assert distance(logits[30:], stock("gemma3", tokens)[30:]) <= TOLERANCE


@every_model
def test_each_planted_fault_shows_far_above_the_tolerance(name: str) -> None:
    for fault, effect in effects(name, telling_case(name, 0)).items():
        assert effect > TELLING, fault


def test_a_window_counts_positions_as_the_query_sees_them() -> None:
    """Mistral's window is 11 in every layer: a repos brings back what a gap pushed out of it."""
    tokens = text(24)
    gap = [("drop", 20, ((4, 18),))]
    far = Oracle(tiny("mistral-sliding")).run(tokens, gap)
    near = Oracle(tiny("mistral-sliding")).run(tokens, [*gap, ("repos", 20)])
    assert distance(far[20:21], near[20:21]) > TELLING
