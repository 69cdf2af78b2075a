"""The problems that are timed: long contexts with holes, repositioned several times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..attend.plan import KeyList, Run, Task
from ..attend.triton import Score, Store
from ..checks import Ints
from ..rotation import Turns, rotary_turns

# An 8B-shaped layer.
QUERY_HEADS, KV_HEADS, DIM = 32, 8, 128
PAGE = 16
SCORE = Score(DIM**-0.5)


@dataclass
class Case:
    """Sequences that read ``retained`` keys each, in ``runs`` runs; their new rows come last."""

    query: Tensor
    store: Store
    lists: list[KeyList]
    tasks: list[Task]
    query_turns: Turns
    key_turns: Turns

    @property
    def read_bytes(self) -> int:
        """The keys and values of all lists, each read once."""
        keys = sum(len(listed.slots) for listed in self.lists)
        return keys * KV_HEADS * 2 * DIM * self.store.keys.element_size()

    @property
    def flop(self) -> int:
        """Two products of two operations for each query head, row and key it sees."""
        seen = sum(int((task.spans[:, 1] - task.spans[:, 0]).sum()) for task in self.tasks)
        return seen * QUERY_HEADS * 4 * DIM

    def dense(self) -> tuple[Tensor, Tensor]:
        """Keys and values ``[sequences, kv heads, retained, dim]`` of lists of equal length."""
        index = torch.from_numpy(np.stack([keys.slots for keys in self.lists])).cuda()
        keys = self.store.keys[:, index].transpose(0, 1).contiguous()
        values = self.store.values[:, index].transpose(0, 1).contiguous()
        return keys, values


def make_case(
    sequences: int,
    retained: int,
    rows: int = 1,
    runs: int = 1,
    holes: float = 0.0,
    seed: int = 0,
    dtype: torch.dtype = torch.bfloat16,
) -> Case:
    """``rows`` new rows per sequence, causal among themselves, at the end of ``retained`` keys.

    A share ``holes`` of the tokens, chosen singly, was dropped; pages lie in random order.
    """
    random = np.random.default_rng(seed)
    tokens = -(-round(retained / (1 - holes)) // PAGE) * PAGE
    pages = random.permutation(sequences * tokens // PAGE)
    total = len(pages) * PAGE
    generator = torch.Generator("cuda").manual_seed(seed)

    def draw(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, device="cuda", dtype=dtype)

    edges = np.linspace(0, retained, runs + 1).astype(np.int64).tolist()
    cuts = [Run(*cut) for cut in zip(edges[:-1], edges[1:], range(runs), strict=True)]
    lists, tasks = [], []
    for number in range(sequences):
        own = pages[number * tokens // PAGE : (number + 1) * tokens // PAGE]
        slots = (own[:, None] * PAGE + np.arange(PAGE)).reshape(-1)
        kept = np.sort(random.permutation(tokens)[:retained])
        lists.append(KeyList(slots[kept], cuts))
        high = retained - rows + 1 + np.arange(rows)
        tasks.append(Task(number * rows, number, np.stack((np.zeros_like(high), high), 1)))
    deltas: Ints = -(np.arange(runs) * 37) if runs > 1 else np.zeros(1, dtype=np.int64)
    return Case(
        draw(sequences * rows, QUERY_HEADS, DIM),
        Store(draw(KV_HEADS, total, DIM), draw(KV_HEADS, total, DIM)),
        lists,
        tasks,
        rotary_turns(-deltas, DIM, device="cuda"),
        rotary_turns(deltas, DIM, device="cuda"),
    )
