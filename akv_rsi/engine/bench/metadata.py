"""What the engine's books cost on a long prompt: a match, a drop, a repos. No model runs."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import torch

from akv_rsi.engine.bench.arms import milliseconds
from akv_rsi.engine.node import Path
from akv_rsi.engine.pool import Ints, LayerShape, PagePool
from akv_rsi.engine.radix import RadixTree
from akv_rsi.engine.view import View
from akv_rsi.types import Drop, Op, Range, Repos

LENGTH = 65536
EDGES = 64
RANGES = 64
ROUNDS = 21


def metadata(seed: int) -> dict[str, Any]:
    """Medians in ms; ``drop`` and ``repos`` include listing the keys that attention then reads."""
    tokens = np.random.default_rng(seed).integers(0, 50000, LENGTH)
    width = LENGTH // RANGES
    holes = tuple((i * width + width // 2, (i + 1) * width) for i in range(RANGES))
    first = (holes[0],)
    rest = holes[1:]
    times = {
        "match_ms": _match(tokens),
        "drop_ms": partial(_edit, first, (Drop(LENGTH, rest),)),
        "repos_ms": partial(_edit, holes, (Repos(LENGTH),)),
    }
    return {
        "tokens": LENGTH,
        **{name: milliseconds([arm() for _ in range(ROUNDS)]) for name, arm in times.items()},
    }


def _match(tokens: Ints) -> Any:
    pool = PagePool([LayerShape(1, 1, 1)], LENGTH // 16, 16, torch.float32)
    tree = RadixTree(pool)
    slots = pool.lease(LENGTH).slots
    node = root = tree.private_root()
    tree.lock(root)
    for start in range(0, LENGTH, LENGTH // EDGES):
        part = slice(start, start + LENGTH // EDGES)
        tree.lock(node)  # another stands here: what follows is an edge of its own
        node = tree.append(node, tokens[part], slots[part], start)
    path = Path(tokens.copy(), ())

    def arm() -> float:
        started = perf_counter()
        match = tree.match(root, path)
        taken = perf_counter() - started
        assert match.length == LENGTH
        return taken

    return arm


def _edit(dropped: tuple[Range, ...], ops: tuple[Op, ...]) -> float:
    """Seconds of ``ops`` on a view of which ``dropped`` are gone."""
    view = View(LENGTH + 1)
    view.append(np.arange(LENGTH))
    view.apply(view.state.apply((Drop(LENGTH, dropped),)), np.empty(0, dtype=np.int64))
    started = perf_counter()
    view.apply(view.state.apply(ops), np.empty(0, dtype=np.int64))
    view.keys()
    return perf_counter() - started
