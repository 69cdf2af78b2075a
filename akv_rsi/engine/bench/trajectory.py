"""One simulated agent trajectory of 64k tokens, and what policies send for each of its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from akv_rsi.engine.pool import Ints
from akv_rsi.engine.request import Completion, Request
from akv_rsi.types import Drop, Op, OpHistory, Refresh, Repos

# Calls, tokens of a turn (what a tool said, and the note on it), tokens answered.
CALLS, TURN, NOTE, ANSWER = 32, 2048, 48, 8
SYSTEM = 512
# Turns whose tool output stays.
KEEP = 6
# Above this, text is cut to the latter; a summary has so many tokens.
LIMIT, LATEST, SUMMARY = 24576, 8192, 128

Run = Callable[[Request], tuple[Completion, list[float]]]


@dataclass(frozen=True, slots=True)
class Turns:
    """The text: a system message and `CALLS` turns."""

    system: Ints
    turns: list[Ints]

    @classmethod
    def drawn(cls, random: np.random.Generator, vocabulary: int) -> Turns:
        """Random tokens."""
        drawn = [random.integers(0, vocabulary, size) for size in (SYSTEM, *[TURN] * CALLS)]
        return cls(drawn[0], drawn[1:])

    def text(self, call: int) -> Ints:
        """All tokens before the answer of that call."""
        return np.concatenate((self.system, *self.turns[: call + 1]))


# A policy yields, for each call, the requests it makes; the last of them is the call itself.
Policy = Callable[[Turns], Iterator[list[Request]]]


def play(turns: Turns, policy: Policy, run: Run) -> dict[str, float]:
    """Latencies in milliseconds; a summarising call counts towards the first token of its turn."""
    first, steps, prompts = [], [], []
    for requests in policy(turns):
        done = [run(request) for request in requests]
        spent = sum(c.ttft + c.itl * (len(c.tokens) - 1) for c, _ in done[:-1])
        first.append(spent + done[-1][0].ttft)
        steps.extend(done[-1][1])
        prompts.append(done[-1][0].attended)
    return {
        "ttft_p50_ms": float(np.percentile(first, 50)) * 1e3,
        "ttft_p95_ms": float(np.percentile(first, 95)) * 1e3,
        "inter_token_p95_ms": float(np.percentile(steps, 95)) * 1e3,
        "attended_at_end": prompts[-1],
    }


def keep_everything(turns: Turns) -> Iterator[list[Request]]:
    """Nothing is touched."""
    for call in range(CALLS):
        yield [_request(turns.text(call))]


def drop_repos(turns: Turns) -> Iterator[list[Request]]:
    """Tool output of more than `KEEP` turns ago is dropped, and what stays closes up."""
    for call in range(CALLS):
        ops: list[Op] = []
        for at in range(KEEP, call):
            ops += [_dropped(at), Repos(_boundary(at))]
        yield [_request(turns.text(call), ops)]


def drop_refresh(turns: Turns) -> Iterator[list[Request]]:
    """As before without closing up; the note on what was dropped is computed anew."""
    for call in range(CALLS):
        ops: list[Op] = []
        for at in range(KEEP, call):
            end = SYSTEM + (at - KEEP + 1) * TURN
            ops += [_dropped(at), Refresh(_boundary(at), ((end - NOTE, end),))]
        yield [_request(turns.text(call), ops)]


def trim(turns: Turns) -> Iterator[list[Request]]:
    """The text loses the same tool output."""
    for call in range(CALLS):
        old = max(0, call - KEEP)
        kept = [turn[-NOTE:] for turn in turns.turns[:old]] + turns.turns[old : call + 1]
        yield [_request(np.concatenate((turns.system, *kept)))]


def truncate(turns: Turns) -> Iterator[list[Request]]:
    """Text above the limit loses its middle."""
    rest: Ints = np.empty(0, dtype=np.int64)
    for turn in turns.turns:
        rest = np.concatenate((rest, turn))
        if len(rest) > LIMIT:
            rest = rest[-LATEST:]
        yield [_request(np.concatenate((turns.system, rest)))]


def summarise(turns: Turns) -> Iterator[list[Request]]:
    """Text above the limit is summarised by the model, and goes on from the summary."""
    rest: Ints = np.empty(0, dtype=np.int64)
    for turn in turns.turns:
        rest = np.concatenate((rest, turn))
        requests = []
        if len(rest) > LIMIT:
            text = np.concatenate((turns.system, rest))
            requests.append(Request(ids(text), max_new_tokens=SUMMARY))
            rest = np.concatenate((rest[:SUMMARY], rest[-LATEST:]))  # any tokens cost the same
        yield [*requests, _request(np.concatenate((turns.system, rest)))]


POLICIES: dict[str, Policy] = {
    "keep everything": keep_everything,
    "truncate": truncate,
    "trim": trim,
    "summarise": summarise,
    "drop + repos": drop_repos,
    "drop + refresh": drop_refresh,
}


def ids(tokens: Ints) -> Sequence[int]:
    """An array as a request takes it, without a copy."""
    return cast("Sequence[int]", tokens)


def _request(tokens: Ints, ops: list[Op] | None = None) -> Request:
    return Request(ids(tokens), OpHistory(tuple(ops or ())), max_new_tokens=ANSWER)


def _boundary(at: int) -> int:
    """Behind turn ``at``."""
    return SYSTEM + (at + 1) * TURN


def _dropped(at: int) -> Drop:
    """Behind turn ``at``, the tool output of `KEEP` turns before."""
    start = SYSTEM + (at - KEEP) * TURN
    return Drop(_boundary(at), ((start, start + TURN - NOTE),))
