"""How far int8 KV moves the logits, over random histories: without a Repos, and with one.

``python -m tests.oracle.rounding`` prints the table of `docs/adr/int8-kv.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from statistics import mean

from .book import Op
from .convert import history_of
from .harness import engine_for
from .histories import draw
from .models import VOCAB, tiny
from .oracle import Oracle

LENGTH = 64


@dataclass(frozen=True)
class Errors:
    """Mean difference of a logit from the single-precision oracle's, per way to run it.

    ``plain`` runs the histories without their Repos, against what those should give.
    """

    plain: float
    view: float
    copy: float


def errors(name: str, histories: int) -> Errors:
    """On the model ``name``, over that many random histories that move keys."""
    engines = {
        mode: engine_for(name, kv_dtype="int8", repos_mode=mode) for mode in ("view", "copy")
    }
    found: dict[str, list[float]] = {"plain": [], "view": [], "copy": []}
    for seed in range(histories):
        history, tokens = moving(Random(f"{name} {seed}"))
        still = [op for op in history if op[0] != "repos"]
        for way, mode, ops in (
            ("plain", "view", still),
            ("view", "view", history),
            ("copy", "copy", history),
        ):
            got = engines[mode].logits(tokens, history_of(ops))
            expected = Oracle(tiny(name)).run(tokens, ops)
            # What precedes the first op is the same for all.
            away = (got - expected)[history[0][1] :]
            found[way].append(float(away.abs().mean()))
    return Errors(**{way: mean(each) for way, each in found.items()})


def moving(rng: Random) -> tuple[list[Op], list[int]]:
    """A history with a Repos that moves keys, and no Restore, which may need that Repos; a text."""
    while True:
        history, book = draw(rng, LENGTH, boundaries=3)
        kinds = {op[0] for op in history}
        moved = [i for i in book.shown() if book.position[i] != book.seen[i][0]]
        if "restore" not in kinds and len(moved) > LENGTH // 4:
            return history, [rng.randrange(VOCAB) for _ in range(LENGTH)]


if __name__ == "__main__":
    for model in ("llama", "llama3", "qwen3-yarn", "gemma3", "phi3-partial", "smollm3"):
        print(model, errors(model, 100), flush=True)
