"""Random op histories that would show a fault, and the text they run over.

A history that never moves a token, or refreshes what nothing reads afterwards, proves nothing.
`telling_case` therefore plants each fault of `faults` and throws a draw away unless every one moves
some logit by more than `TELLING`, a hundred times the tolerance of the comparisons.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from random import Random

import torch
from torch import Tensor

from .book import Book, Op, groups, runs
from .faults import StaleVersion, WrongDelta, WrongMask
from .models import VOCAB, tiny
from .oracle import Oracle

TOLERANCE = 1e-4
TELLING = 100 * TOLERANCE


@dataclass(frozen=True)
class Case:
    """Tokens, a history over them, and one token for each kind of fault to strike.

    ``moved`` is read at another position than its KV was computed at, ``hidden`` was dropped and
    stays so, ``renewed`` was refreshed; the last of each kind in the text. ``expected`` [n, vocab]
    are the oracle's logits.
    """

    tokens: tuple[int, ...]
    history: tuple[Op, ...]
    moved: int
    hidden: int
    renewed: int
    expected: Tensor

    @property
    def boundaries(self) -> tuple[int, ...]:
        return tuple(boundary for boundary, _ in groups(self.history))


@cache
def telling_case(name: str, seed: int, length: int = 48) -> Case:
    """A random case for the model ``name`` in which each kind of fault shows."""
    rng = Random(f"{name} {seed}")
    for _ in range(50):
        case = _case(name, rng, length)
        if case is not None and all(effect > TELLING for effect in effects(name, case).values()):
            return case
    raise AssertionError(f"no telling history for {name} in 50 draws: is the model too smooth?")


def effects(name: str, case: Case) -> dict[str, float]:
    """How far each planted fault moves the logits: the largest difference."""
    model = tiny(name)
    planted = {
        "delta": WrongDelta(model, case.moved),
        "mask": WrongMask(model, case.hidden),
        "version": StaleVersion(model, case.renewed),
    }
    return {
        fault: distance(oracle.run(case.tokens, case.history), case.expected)
        for fault, oracle in planted.items()
    }


def distance(got: Tensor, expected: Tensor) -> float:
    """The largest difference of two sets of logits; infinite where either is not a number."""
    assert got.shape == expected.shape, f"{tuple(got.shape)} against {tuple(expected.shape)}"
    return float(torch.nan_to_num((got - expected).abs(), nan=float("inf")).max())


def _case(name: str, rng: Random, length: int) -> Case | None:
    history, book = draw(rng, length, boundaries=3)
    moved = [i for i in book.shown() if book.position[i] != book.seen[i][0]]
    hidden = [i for i in range(length) if not book.visible[i]]
    renewed = _renewed(history, length)
    if not (moved and hidden and renewed):
        return None
    tokens = tuple(rng.randrange(VOCAB) for _ in range(length))
    expected = Oracle(tiny(name)).run(tokens, history)
    return Case(tokens, tuple(history), moved[-1], hidden[-1], renewed[-1], expected)


def draw(rng: Random, length: int, boundaries: int) -> tuple[list[Op], Book]:
    """Any legal random history with the last boundary well before ``length``, and its book."""
    book, history = Book(), list[Op]()
    for boundary in sorted(rng.sample(range(length // 4, length - length // 6), boundaries)):
        book.append(boundary - book.length)
        ops = draw_group(rng, book)
        history += ops
        book.apply(ops)
    book.append(length - book.length)
    return history, book


def draw_group(rng: Random, book: Book) -> list[Op]:
    """Random legal ops at the end of ``book``, in order; possibly none."""
    at, ops = book.length, list[Op]()
    shown, hidden = book.shown(), [i for i in range(at) if not book.visible[i]]
    dropped = _stretches(rng, shown[1:], 3, 5) if rng.random() < 0.8 else []
    restored = _stretches(rng, hidden, 2, 4) if rng.random() < 0.4 else []
    if dropped and len(dropped) <= len(shown) - 4:
        ops.append(("drop", at, runs(dropped)))
        shown = sorted(set(shown) - set(dropped))
    if restored:
        ops.append(("restore", at, runs(restored)))
        shown = sorted({*shown, *restored})
    if rng.random() < 0.6 or any(book.position[i] is None for i in restored):
        ops.append(("repos", at))
    if rng.random() < 0.7 and (renewed := _stretches(rng, shown[len(shown) // 3 :], 2, 6)):
        ops.append(("refresh", at, runs(renewed)))
    return ops


def _stretches(rng: Random, tokens: list[int], most: int, longest: int) -> list[int]:
    """Up to ``most`` stretches of ``tokens``, each of up to ``longest`` of them."""
    chosen: set[int] = set()
    for _ in range(rng.randint(1, most) if tokens else 0):
        start = rng.randrange(len(tokens))
        chosen.update(tokens[start : start + rng.randint(1, longest)])
    return sorted(chosen)


def _renewed(history: list[Op], length: int) -> list[int]:
    """Tokens that a refresh changes and the last queries read."""
    book, changed = Book(), set[int]()
    for boundary, ops in groups(history):
        book.append(boundary - book.length)
        changed |= set(book.apply(ops))
    return [i for i in sorted(changed) if book.visible[i]]
