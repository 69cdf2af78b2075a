"""Random sessions: conversations, forks, tenants and cancellations on one engine short of memory.

What the engine keeps between requests is where it can go wrong unseen, so nothing is reset inside a
session, invariants are checked after every step, and every sampled row is compared with the oracle.
"""

from __future__ import annotations

from random import Random

import pytest

from akv_rsi.engine.engine import Engine
from akv_rsi.engine.request import Completion
from akv_rsi.errors import ContextLimit

from .book import Op
from .harness import Call, answering, engine_for, rows_of
from .histories import TOLERANCE, distance, draw
from .models import CONFIGS, VOCAB

Text = tuple[tuple[int, ...], tuple[Op, ...]]


def texts(rng: Random) -> list[Text]:
    """Three conversations; and of the first, a fork by other ops, one without, one by its tail."""
    drawn: list[Text] = []
    for _ in range(3):
        length = rng.randint(24, 64)
        history, _book = draw(rng, length, rng.randint(1, 4))
        drawn.append((tuple(rng.randrange(VOCAB) for _ in range(length)), tuple(history)))
    first = drawn[0][0]
    other = tuple(draw(rng, len(first), 2)[0])
    return [*drawn, (first, other), (first, ()), (first[: len(first) // 2] + drawn[1][0], ())]


def random_calls(rng: Random, choice: list[Text]) -> list[Call]:
    calls = []
    for _ in range(rng.randint(1, 5)):
        tokens, history = rng.choice(choice)
        new = rng.randint(1, 12)
        prompt = rng.randint(1, len(tokens) - new)
        calls.append(Call(tokens, history, prompt, new, rng.choice(["", "", "another tenant"])))
    return calls


def run(engine: Engine, calls: list[Call], rng: Random) -> list[Call]:
    """Runs the calls to their end, cancelling some on the way; those that answered."""
    with answering(calls) as sampled:
        numbers = {engine.submit(call.request(i)): call for i, call in enumerate(calls)}
        answered: list[Call] = []
        while len(answered) < len(numbers):
            for number, outcome in engine.step():
                call = numbers[number]
                answered.append(call)
                if isinstance(outcome, Completion):
                    assert outcome.tokens == call.tokens[call.prompt :]
                else:
                    assert isinstance(outcome, ContextLimit), "only the pool may be too small"
            engine.check()
            victim = rng.choice(list(numbers))
            if rng.random() < 0.05 and engine.cancel(victim):
                engine.check()
                del numbers[victim]
    for call, rows in zip(calls, sampled, strict=True):
        call.rows = rows
    return [call for call in answered if len(call.rows) == call.new]


def session(name: str, seed: int, rounds: int) -> int:
    """One session of some batches; how many pages it had to evict, in whatever way."""
    rng = Random(f"{name} {seed}")
    page = rng.choice([1, 2, 4, 7, 16])
    engine = engine_for(
        name,
        page_size=page,
        pages=rng.choice([70, 80, 120]) // page + 2,
        max_batch=rng.choice([1, 2, 5]),
        chunk_tokens=rng.choice([1, 5, 13, 2048]),
        restore_passes=rng.choice([0, 0, 20]),
        repos_mode="copy" if seed % 2 else "view",
    )
    choice = texts(rng)
    for _ in range(rounds):
        for call in run(engine, random_calls(rng, choice), rng):
            assert distance(rows_of(call), call.expected(name)) <= TOLERANCE
    stats = engine.stats()
    return stats.evicted_pages + stats.dropped_pages


@pytest.mark.parametrize(("name", "seed"), [("llama3", 4), ("llama3", 5), ("gemma3", 4)])
def test_a_random_session(name: str, seed: int) -> None:
    assert session(name, seed, rounds=4) > 0, "a session without eviction proves little"


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_many_random_sessions(name: str) -> None:
    assert sum(session(name, seed, rounds=6) for seed in range(1, 11)) > 0
