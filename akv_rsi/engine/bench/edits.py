"""The next token after an edit of a long context, against an ordinary decode step.

Half of the context goes, in blocks that begin in its last three quarters: as a Drop, as a Drop with
a Refresh of a tenth of the survivors, or as a trim of the text, which must compute again all that
follows its cut.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from time import perf_counter
from typing import Any

from akv_rsi.engine.bench.arms import milliseconds, ratio, take_turns
from akv_rsi.engine.bench.shape import random_tokens
from akv_rsi.engine.engine import Engine
from akv_rsi.engine.request import Request
from akv_rsi.types import Drop, Op, OpHistory, Range, Refresh, Repos

CONTEXT = 4096
BLOCKS = 16
BLOCK = CONTEXT // 2 // BLOCKS
FIRST = CONTEXT // 4 - BLOCK
STRIDE = (CONTEXT - FIRST) // BLOCKS
REFRESHED = CONTEXT // 2 // 10 // BLOCKS  # behind each block
STEPS = 16


def after_edit(engine: Engine, rounds: int, seed: int) -> dict[str, Any]:
    """The ratios, and the pages that a Repos took beyond a Drop alone."""
    bench = _Edits(engine, random_tokens(CONTEXT + STEPS, seed))
    quick = take_turns({"step": bench.step, "drop": partial(bench.ask, bench.drop)}, 3 * rounds)
    arms = {"drop": partial(bench.ask, bench.drop), "refresh": partial(bench.ask, bench.refresh)}
    slow = take_turns(arms | {"trim": bench.trim}, rounds)
    return {
        "context": CONTEXT,
        "drop_to_step": ratio(quick["drop"], quick["step"]),
        "trim_to_drop": ratio(slow["trim"], slow["drop"]),
        "trim_to_refresh": ratio(slow["trim"], slow["refresh"]),
        "refresh_to_drop": ratio(slow["refresh"], slow["drop"]),
        "step_ms": milliseconds(quick["step"]),
        "drop_ms": milliseconds(quick["drop"]),
        "refresh_ms": milliseconds(slow["refresh"]),
        "trim_ms": milliseconds(slow["trim"]),
        "pages_of_a_repos": bench.pages(bench.repos) - bench.pages(bench.drop),
    }


class _Edits:
    """A cached context, and calls that go on from it; every edit differs by a token's breadth."""

    def __init__(self, engine: Engine, tokens: tuple[int, ...]) -> None:
        self._engine = engine
        self._tokens = tokens
        self._edits = count()
        engine.reset()
        engine.generate([Request(tokens[:CONTEXT], max_new_tokens=1)])

    def step(self) -> float:
        """Seconds of a decode step with all of the context."""
        return self._engine.generate([Request(self._tokens, max_new_tokens=STEPS)])[0].itl

    def ask(self, edit: Any) -> float:
        """Seconds from the call to its one token, ``edit`` before its last prompt token."""
        ops = edit(next(self._edits))
        request = Request(self._tokens[: CONTEXT + 1], OpHistory(ops), max_new_tokens=1)
        return self._timed(request)

    def trim(self) -> float:
        """Seconds until the next token when the text itself is edited."""
        gone = _blocks(next(self._edits))
        kept = [i for i in range(CONTEXT + 1) if not any(low <= i < high for low, high in gone)]
        return self._timed(Request(tuple(self._tokens[i] for i in kept), max_new_tokens=1))

    def pages(self, edit: Any) -> int:
        """Pages that a call with ``edit`` takes."""
        before = self._engine.stats().pages_free
        self.ask(edit)
        return before - self._engine.stats().pages_free

    def drop(self, number: int) -> tuple[Op, ...]:
        """Half of the context goes."""
        return (Drop(CONTEXT, _blocks(number)),)

    def repos(self, number: int) -> tuple[Op, ...]:
        """The gaps are closed too."""
        return (*self.drop(number), Repos(CONTEXT))

    def refresh(self, number: int) -> tuple[Op, ...]:
        """A tenth of the survivors is recomputed: what follows each block."""
        ends = [high for _, high in _blocks(number)]
        return (*self.drop(number), Refresh(CONTEXT, tuple((e, e + REFRESHED) for e in ends)))

    def _timed(self, request: Request) -> float:
        # The last token of a call is computed along with the next one: not with the one we time.
        self._engine.generate([Request(self._tokens[:1], max_new_tokens=1)])
        started = perf_counter()
        self._engine.generate([request])
        return perf_counter() - started


def _blocks(number: int) -> tuple[Range, ...]:
    moved = number % (STRIDE - BLOCK - REFRESHED)
    starts = [FIRST + moved + i * STRIDE for i in range(BLOCKS)]
    return tuple((start, start + BLOCK) for start in starts)
