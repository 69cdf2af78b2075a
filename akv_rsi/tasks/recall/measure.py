"""Asks a model for the facts of transcripts under every variant, and pairs the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from akv_rsi.engine.request import Completion, Request
from akv_rsi.errors import ConfigError
from akv_rsi.tasks.agent import ChatFormat
from akv_rsi.tasks.environment import Message
from akv_rsi.tasks.recall.transcript import Fact, Recall, recall
from akv_rsi.tasks.recall.variants import Prompt, Variant

Floats = NDArray[np.float64]
BATCH = 32  # questions in one pass


class Branches(Protocol):
    """What recall needs of an engine."""

    def reset(self) -> None:
        """Forgets every cached token."""
        ...

    def next_logits(self, request: Request) -> Any:
        """Computes a prompt, and keeps it."""
        ...

    def tails(self, requests: Sequence[Request], count: int) -> Sequence[Any]:
        """The logits of each prompt's last tokens, which must not be cached yet."""
        ...

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """The completions of requests."""
        ...


class Answer(NamedTuple):
    """One question: the gold answer's log-probability in nats, and whether greedy finds it."""

    likely: float
    exact: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """One transcript under one variant: an answer for each of its facts, and what it took."""

    answers: tuple[Answer, ...]
    attended: int
    prefilled: int


def ask(
    engine: Branches, chat: ChatFormat, facts: Sequence[Fact], prompt: Prompt, lead: bool = False
) -> Asked:
    """Asks for each fact behind ``prompt``, which is computed once; ``lead`` begins the answers."""
    leads = [said(chat, fact.lead) if lead else [] for fact in facts]
    asked = [
        (*chat.encode(fact.question), *chat.prompt(), *led)
        for fact, led in zip(facts, leads, strict=True)
    ]
    golds = [
        said(chat, f"{fact.lead} {fact.value}" if lead else fact.value)[len(led) :]
        for fact, led in zip(facts, leads, strict=True)
    ]
    shared = _shared(asked)
    # One token of the questions goes along: so the ops at the end are done, and cached.
    engine.next_logits(Request((*prompt.tokens, *asked[0][:shared]), prompt.history))
    answers = list[Answer]()
    for start in range(0, len(facts), BATCH):
        questions, gold = asked[start : start + BATCH], golds[start : start + BATCH]
        count = max(map(len, gold))
        requests = [
            Request((*prompt.tokens, *question, *told[:-1]), prompt.history)
            for question, told in zip(questions, gold, strict=True)
        ]
        for tail, told in zip(engine.tails(requests, count), gold, strict=True):
            answers.append(_answer(tail[-len(told) :], told))
    return Asked(tuple(answers), prompt.attended, prompt.prefilled)


def said(chat: ChatFormat, text: str) -> list[int]:
    """The tokens of an answer, without its header, and without what ends every answer alike.

    `ConfigError` for a vocabulary that cannot tell numbers apart: it has no answer to give.
    """
    tokens = chat.encode(Message("assistant", text))
    one, two = (reversed(chat.encode(Message("assistant", word))) for word in ("1", "2"))
    differ = (i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b)
    if (end := next(differ, None)) is None:
        raise ConfigError("this model's vocabulary has no numbers, so it cannot be asked for codes")
    return tokens[len(chat.prompt()) : len(tokens) - end]


def _shared(asked: Sequence[Sequence[int]]) -> int:
    """How many leading tokens all questions share: at least one, and not all of any."""
    columns = zip(*asked, strict=False)
    same = next((i for i, column in enumerate(columns) if len(set(column)) > 1), 1)
    return max(1, min(same, min(map(len, asked)) - 1))


def _answer(logits: Any, told: Sequence[int]) -> Answer:
    scores = logits.float().log_softmax(-1)
    likely = sum(float(scores[i, token]) for i, token in enumerate(told))
    return Answer(likely, [int(row.argmax()) for row in scores] == list(told))


class Cell(NamedTuple):
    """A variant at one length, all answers of all transcripts in one order."""

    likely: Floats
    exact: Floats
    noted: Floats
    record: NDArray[np.int64]
    attended: float
    prefilled: float


def measure(
    engine: Branches,
    chat: ChatFormat,
    variants: Mapping[str, Variant],
    length: int,
    questions: int,
    lead: bool = False,
    report: Callable[[str], None] = lambda _: None,
) -> dict[str, Cell]:
    """Every variant on as many transcripts as give ``questions`` about noted facts."""
    rows: dict[str, list[Asked]] = {name: [] for name in variants}
    facts = list[tuple[int, Fact]]()
    seed = 0
    while sum(fact.noted for _, fact in facts) < questions:
        made = recall(seed, length, chat)
        facts += [(seed, fact) for fact in made.facts]
        engine.reset()
        summarise = partial(_summary, engine, chat, made)
        for name, variant in variants.items():
            rows[name].append(ask(engine, chat, made.facts, variant(made, chat, summarise), lead))
            report(f"{length} tokens, transcript {seed + 1}: {name}")
        seed += 1
    noted = np.array([fact.noted for _, fact in facts], dtype=float)
    record = np.array([1000 * seed + fact.record for seed, fact in facts])
    return {name: _cell(row, noted, record) for name, row in rows.items()}


def _cell(row: Sequence[Asked], noted: Floats, record: NDArray[np.int64]) -> Cell:
    answers = [answer for asked in row for answer in asked.answers]
    return Cell(
        np.array([answer.likely for answer in answers]),
        np.array([answer.exact for answer in answers], dtype=float),
        noted,
        record,
        float(np.mean([asked.attended for asked in row])),
        float(np.mean([asked.prefilled for asked in row])),
    )


def _summary(engine: Branches, chat: ChatFormat, made: Recall, tokens: Sequence[int]) -> Message:
    asked = (*tokens, *chat.encode(chat.summary_request()), *chat.prompt())
    request = Request(asked, max_new_tokens=chat.max_summary_tokens, stop=chat.stop)
    (done,) = engine.generate([request])
    return Message("assistant", chat.decode(done.tokens))
