"""Durable LLM calls: money is set aside, the intent recorded, the call made, the answer recorded.

X1  no call is made that was not reserved and recorded before
X2  an answer is recorded once, and recalled ever after
X3  calls that were cut off between intent and answer count as spent in full: they may be billed
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

from pydantic import BaseModel

from akv_rsi.search.journal import Journal, Outcome
from akv_rsi.search.ledger import Ledger, Spend
from akv_rsi.search.llm.answers import (
    MODES,
    PROBE_TOKENS,
    Probe,
    Proposal,
    instruction,
    probe,
    read,
    schema,
)
from akv_rsi.search.llm.endpoint import Endpoint, Mode, estimate, unusable
from akv_rsi.search.llm.prompts import prompt

CONCURRENCY = 4
USUAL = "x" * 12_000  # a prompt of usual length
LONGEST_TEXT = 4000  # characters of an answer that was no answer, kept to be looked at

# Anything wrong with an answer that was read, as text for its author; empty when it is fit.
Check = Callable[[BaseModel], str]


@dataclass(frozen=True, slots=True)
class Ask:
    """One call: to which model, for what (``operator``), with which prompt and form of answer.

    An answer may have ``tokens``, or 0: what the endpoint allows.
    """

    model: str
    operator: str
    system: str
    user: str
    form: type[BaseModel]
    parents: tuple[str, ...] = ()
    lesson: str = ""
    tokens: int = 0
    advice: str = ""

    def digest(self) -> str:
        """Twelve hex digits that name the prompt."""
        return hashlib.sha256(f"{self.system}\0{self.user}".encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Answered:
    """What came of a call. ``content`` is the form as JSON, None if there is no usable answer.

    ``problems`` is what is wrong with the content, ``failure`` why there is none.
    """

    content: dict[str, Any] | None
    problems: str
    failure: str
    tokens_in: int
    tokens_out: int
    usd: float
    text: str = ""


class Exchange:
    """Talks to some models on one account."""

    def __init__(self, endpoints: dict[str, Endpoint], ledger: Ledger) -> None:
        self.endpoints = endpoints
        self.ledger = ledger
        self.modes: dict[str, Mode] = {}

    def worst(self, ask: Ask) -> Spend:
        """The most that a call can cost, all its tries billed."""
        endpoint = self.endpoints[ask.model]
        limits = endpoint.limits
        tokens_in = limits.tries * estimate(ask.system, ask.user)
        tokens_out = limits.tries * (ask.tokens or limits.tokens)
        usd = endpoint.model.dollars(tokens_in, tokens_out)
        return Spend(usd=usd, llm_tokens=tokens_in + tokens_out)

    @property
    def proposals(self) -> float:
        """How many proposals of a usual length can be paid for at the least."""
        dear = max(self.worst(Ask(m, "", USUAL, "", Probe)).usd for m in self.endpoints)
        return (
            self.ledger.free.usd // dear
            if dear and math.isfinite(self.ledger.limit.usd)
            else math.inf
        )

    def affordable(self, asks: Sequence[Ask]) -> list[Ask]:
        """As many of the first ``asks`` as can be paid for."""
        fit: list[Ask] = []
        for ask in asks:
            if not self.ledger.can_reserve(sum(map(self.worst, [*fit, ask]), Spend())):
                break
            fit.append(ask)
        return fit

    def perform(
        self, journal: Journal, key: str, asks: Sequence[Ask], check: Check
    ) -> list[Answered]:
        """The answers, in order; none when the account has no money for ``asks``."""
        if not asks:
            return []
        answers = self._durably(journal, key, asks, lambda: self.ask(asks, check))
        return [Answered(**row) for row in answers]

    def probe(self, journal: Journal) -> None:
        """Finds out, once, which form of answers each model manages; `ConfigError` if none does.

        A failure on record says how it was then: a run that is resumed asks how it is now.
        """
        for model, endpoint in self.endpoints.items():
            asks = [_probing(model)] * len(MODES)
            for attempt in count():
                recalled, key = journal.replaying, f"probe/{model}" + f"/{attempt}" * bool(attempt)
                found = self._durably(journal, key, asks, lambda e=endpoint: [_probed(e)])  # type: ignore[misc]
                if found and found[0]["content"]:
                    self.modes[model] = found[0]["content"]["mode"]
                    break
                if not (found and recalled):
                    why = found[0]["failure"] if found else "--max-usd does not pay for a question"
                    raise unusable(endpoint, why)

    def _durably(
        self,
        journal: Journal,
        key: str,
        asks: Sequence[Ask],
        effect: Callable[[], list[Answered]],
    ) -> list[dict[str, Any]]:
        """What ``effect`` answers, on the terms of X1 to X3; nothing when it cannot be paid for."""
        most = sum(map(self.worst, asks), Spend())
        intent = [[ask.model, ask.operator, ask.digest(), self.worst(ask).usd] for ask in asks]
        for attempt in count():
            if not self.ledger.can_reserve(most):
                break
            name, recalled = f"{key}/{attempt}", journal.replaying
            ticket = self.ledger.reserve(most)
            journal.perform("llm-asked", name, lambda: Outcome(intent))
            if recalled and journal.upcoming != ("llm-answered", name):
                self.ledger.settle(ticket, most)  # X3
                continue
            event = journal.perform(
                "llm-answered", name, lambda: Outcome([asdict(answer) for answer in effect()])
            )
            rows: list[dict[str, Any]] = list(event.body)
            self.ledger.settle(ticket, sum(map(_spent, rows), Spend()))
            return rows
        return []

    def ask(self, asks: Sequence[Ask], check: Check) -> list[Answered]:
        """All calls, a few at a time, off the record; checks run one by one."""
        with ThreadPoolExecutor(CONCURRENCY) as pool:
            raw = list(pool.map(self._call, asks))
        return [_checked(answered, ask, check) for answered, ask in zip(raw, asks, strict=True)]

    def _call(self, ask: Ask) -> Answered:
        endpoint, mode = self.endpoints[ask.model], self.modes.get(ask.model, "fenced")
        if endpoint.model.grammar and ask.form is Proposal:
            mode = "grammar"
        system = f"{ask.system}\n{instruction(ask.form, mode)}"
        reply = endpoint.ask(system, ask.user, mode, schema(ask.form, mode), ask.tokens)
        usd = endpoint.model.dollars(reply.tokens_in, reply.tokens_out)
        took = (reply.tokens_in, reply.tokens_out, usd)
        if reply.failure:
            return Answered(None, "", f"{reply.failure} {reply.detail}".strip(), *took)
        form = read(reply.text, ask.form)
        if form is None:
            return Answered(None, "", "malformed", *took, reply.text[:LONGEST_TEXT])
        return Answered(form.model_dump(), "", "", *took)


def _checked(answered: Answered, ask: Ask, check: Check) -> Answered:
    if answered.content is None:
        return answered
    problems = check(ask.form.model_validate(answered.content))
    return Answered(**{**asdict(answered), "problems": problems})


def _spent(row: dict[str, Any]) -> Spend:
    return Spend(usd=row["usd"], llm_tokens=row["tokens_in"] + row["tokens_out"])


def _probing(model: str) -> Ask:
    text = instruction(Probe, "fenced")
    return Ask(model, "probe", text, prompt("probe"), Probe, tokens=PROBE_TOKENS)


def _probed(endpoint: Endpoint) -> Answered:
    mode, reply = probe(endpoint)
    content = None if mode is None else {"mode": mode}
    usd = endpoint.model.dollars(reply.tokens_in, reply.tokens_out)
    failure = "" if content else f"{reply.failure} {reply.detail}".strip()
    return Answered(content, "", failure, reply.tokens_in, reply.tokens_out, usd)
