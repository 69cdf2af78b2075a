"""Self-critique with evidence: what a candidate dropped and should not have, kept and need not.

For each failed episode the call that first departed from the expert's is asked again under other
ops (`fork`), until it is known which lost span was to blame (`blame`). All failures advance in
lockstep on one engine, so their forks run in common passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from akv_rsi.engine.request import Completion
from akv_rsi.errors import TaskError
from akv_rsi.policies.resident import identifiers_of
from akv_rsi.search.blame import Blame, Inquiry, Suspect, inquire
from akv_rsi.search.findings import (
    Critique,
    Effort,
    Finding,
    Recorded,
    Span,
    Waste,
    dearest,
    merged,
)
from akv_rsi.search.fork import Fork, Variant
from akv_rsi.search.traits import Observer, Sample, Traits, add_up
from akv_rsi.search.walk import Step, same_action, walk
from akv_rsi.tasks.bench import Bench
from akv_rsi.tasks.cohort import complete
from akv_rsi.tasks.episode import Episode
from akv_rsi.tasks.evaluator import deal
from akv_rsi.tasks.workers import Report

LONGEST_TEXT = 160  # characters of a span's text
SHARD = 16  # episodes in a job


class Works(Protocol):
    """What a critique needs of an evaluator."""

    def work(self, jobs: Sequence[Any]) -> list[Any]:
        """What the jobs return, each given a bench."""
        ...


def critique(evaluator: Works, episodes: Sequence[Episode]) -> Critique:
    """The evidence of ``episodes`` of one policy, which were run with ``keep``."""
    recorded = [Recorded(e.task, e.trajectory, e.success == 1) for e in episodes if e.trajectory]
    hands = deal(recorded, SHARD) if recorded else []
    return merged(evaluator.work([CritiqueJob(tuple(hand)) for hand in hands]))


def criticise(bench: Bench, recorded: Sequence[Recorded]) -> Critique:
    """The evidence of ``recorded`` episodes, from a cold cache."""
    bench.agent.engine.reset()
    cases = [_Case(bench, episode) for episode in recorded]
    effort = _settle(bench, [case for case in cases if case.asks])
    samples = add_up(sample for case in cases for sample in case.samples)
    return Critique(
        tuple(case.finding for case in cases if case.finding is not None),
        dearest(waste for case in cases for waste in case.waste),
        samples,
        effort,
        tuple(f"{case.name}: {case.problem}" for case in cases if case.problem),
    )


@dataclass(frozen=True, slots=True)
class CritiqueJob:
    """`criticise` as work for an evaluator."""

    recorded: tuple[Recorded, ...]

    def __call__(self, bench: Bench, report: Report) -> Critique:
        """The evidence of its episodes."""
        return criticise(bench, self.recorded)


class _Case:
    """One episode: what its steps tell without a model, and the inquiry into its failure."""

    def __init__(self, bench: Bench, episode: Recorded) -> None:
        self.task = episode.task
        self.name = f"{episode.task.suite}/{episode.task.seed}"
        self.samples: list[Sample] = []
        self.waste: list[Waste] = []
        self.finding: Finding | None = None
        self.problem = ""
        self.asks: list[Variant] = []
        self.fork: Fork | None = None
        self._traits: dict[int, Traits] = {}
        self._reads: dict[int, int] = {}
        self._spans: dict[int, Span] = {}
        try:
            self._look(bench, episode)
        except TaskError as error:
            self.problem = str(error)

    def requests(self) -> list[tuple[Fork, Variant]]:
        """What the inquiry wants to know next."""
        return [(self.fork, variant) for variant in self.asks] if self.fork is not None else []

    def tell(self, said: Sequence[str]) -> None:
        """The agent's answers to `requests`."""
        assert self.fork is not None
        right = self.fork.step.right or ""
        try:
            self.asks = self._inquiry.send([same_action(words, right) for words in said])
        except StopIteration as stop:
            self.asks, self.finding = [], self._find(self.fork.step, stop.value)

    def _look(self, bench: Bench, episode: Recorded) -> None:
        observer, span = Observer(), bench.agent.chat.reliable_span
        for step in walk(bench, episode.task, episode.trajectory):
            traits = observer.traits(step.snapshot(self.name, span))
            self._weigh(step, traits)
            if self.fork is None and not episode.success and step.departs:
                self.fork, self._traits = Fork(bench.agent.chat, step), traits
        self.waste = [Waste(self.task, self._spans[i], n) for i, n in self._reads.items()]
        if self.fork is not None:
            self._inquiry: Inquiry = inquire(_suspects(self.fork.step))
            self.asks = next(self._inquiry)
        elif not episode.success:
            self.problem = "no call departs from an expert's"

    def _weigh(self, step: Step, traits: dict[int, Traits]) -> None:
        if step.needed is None:
            return
        hidden = step.hidden()
        for number, own in traits.items():
            gone, needed = number in hidden, number in step.needed
            self.samples.append(Sample(own, gone, needed, own.tokens))
            if not gone and not needed:
                self._reads[number] = self._reads.get(number, 0) + own.tokens
                self._spans[number] = _span(step, number, own)

    def _find(self, step: Step, blame: Blame) -> Finding:
        spans = [
            tuple(_span(step, i, self._traits[i]) for i in ids if i in self._traits)
            for ids in (blame.culprits, blame.others, blame.innocent)
        ]
        return Finding(self.task, step.turn, step.said, step.right or "", blame.cause, *spans)


def _settle(bench: Bench, cases: list[_Case]) -> Effort:
    """Asks until every case is closed; each round is one batch for the engine."""
    effort = Effort()
    while open_cases := [case for case in cases if case.asks]:
        asked = [request for case in open_cases for request in case.requests()]
        requests = [fork.request(variant) for fork, variant in asked]
        answers = complete(bench.agent.engine, requests)
        said = iter([_said(bench, answer) for answer in answers])
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(answer, Completion):
                spent = (len(request.tokens), answer.computed, len(answer.tokens))
                effort += Effort(1, *spent)
        for case in open_cases:
            case.tell([next(said) for _ in case.asks])
    return effort


def _said(bench: Bench, answer: object) -> str:
    return bench.agent.chat.decode(answer.tokens) if isinstance(answer, Completion) else ""


def _suspects(step: Step) -> list[Suspect]:
    """The hidden segments: needed ones first, then those that hold the words of the right action.

    Words that the call could see elsewhere do not count.
    """
    hidden, needed = step.hidden(), step.needed or frozenset()
    seen = {w for s in step.segments if s.id not in hidden for w in identifiers_of(s.text)}
    wanted = set(identifiers_of(step.right or "")) - seen

    def order(number: int) -> tuple[bool, int, int]:
        held = wanted & set(identifiers_of(step.segments[number].text))
        return (number not in needed, -len(held), -number)

    return [Suspect(number, tuple(hidden[number])) for number in sorted(hidden, key=order)]


def _span(step: Step, number: int, traits: Traits) -> Span:
    text = step.segments[number].text
    return Span(number, text[:LONGEST_TEXT], traits)
