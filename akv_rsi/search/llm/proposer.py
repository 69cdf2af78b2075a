"""The proposer that asks language models, and the critic that asks them for lessons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pydantic import BaseModel

from akv_rsi.policies.spec import PolicySpec
from akv_rsi.search.bandit import Bandit
from akv_rsi.search.candidate import Candidate
from akv_rsi.search.findings import Critique
from akv_rsi.search.journal import Journal
from akv_rsi.search.llm.answers import Diagnosis, Proposal, Strategy
from akv_rsi.search.llm.exchange import CONCURRENCY, Answered, Ask, Exchange
from akv_rsi.search.llm.prompts import data, prompt
from akv_rsi.search.llm.strategy import Strategies, name_of
from akv_rsi.search.playbook import Playbook
from akv_rsi.search.propose import Brief, Proposer
from akv_rsi.search.tell import evidence_lines

REPAIRS = 3
OPERATORS = ("new", "improve", "combine")
RECORD = 8  # candidates that are measured before other advice is asked for
SHOWN, LESSONS = 3, 4  # policies and lessons in a prompt

# What is wrong with a policy's source, with line numbers; empty if nothing is.
Problems = Callable[[str], str]


class LLMProposer:
    """Asks models for policies in `consult`, and hands them out in `propose` beside others'.

    ``beside`` is the offline proposer: it is never displaced, and goes on when the money is spent.
    What models wrote is untrusted and runs in the sandbox.
    """

    name = "llm"

    def __init__(
        self,
        exchange: Exchange,
        beside: Proposer,
        playbook: Playbook,
        problems: Problems,
        about: Mapping[str, str],
    ) -> None:
        """``about`` says what is searched for: ``budget``, and the agent's ``tools``."""
        self.exchange = exchange
        self.playbook = playbook
        models = list(exchange.endpoints)
        self.bandit = Bandit([f"{operator}@{model}" for model in models for operator in OPERATORS])
        self._beside = beside
        self._problems = problems
        self._system = prompt("system", full="1", budget=about["budget"], form="")
        self._tools = about["tools"]
        self.strategies = Strategies()
        self._round = self._reworded = 0
        self._drafts: list[Candidate] = []

    def propose(self, brief: Brief, count: int) -> list[Candidate]:
        """What models answered, once, and as much from the offline proposer as without them."""
        drafts, self._drafts = self._drafts, []
        return [*drafts, *self._beside.propose(brief, count)]

    def consult(self, brief: Brief, journal: Journal, key: str) -> None:
        """Asks a few models; what is refused goes back to its author, up to three times."""
        self._drafts = []
        self._advance(journal, key)
        advice = self.strategies.texts
        plans = [self._plan(brief, advice[i % len(advice)]) for i in range(CONCURRENCY)]
        asks = self.exchange.affordable(plans)
        for wave in range(1 + REPAIRS):
            answers = self.exchange.perform(journal, f"{key}/{wave}", asks, self._check)
            pairs = list(zip(asks, answers, strict=False))
            self._drafts += [c for ask, answer in pairs if (c := _draft(ask, answer, wave))]
            refused = [self._repair(ask, answer) for ask, answer in pairs if answer.problems]
            asks = self.exchange.affordable(refused)

    def _advance(self, journal: Journal, key: str) -> None:
        """Judges the challenging advice; asks for another one when there is none."""
        self.strategies.judge(self._round)
        measured = len(self.strategies.record)
        if self.strategies.challenger is None and measured >= self._reworded + RECORD:
            self._reworded = measured
            told = "\n".join(self.strategies.record[-3 * RECORD :])
            blanks = {"strategy": data(self.strategies.incumbent), "record": data(told)}
            model = next(iter(self.exchange.endpoints))
            ask = Ask(model, "reword", self._system, prompt("reword", **blanks), Strategy)
            asks = self.exchange.affordable([ask])
            for answer in self.exchange.perform(journal, f"{key}/reword", asks, _fine):
                if answer.content is not None:
                    self.strategies.challenge(answer.content["strategy"], self._round)
        self._round += 1

    def learn(self, candidate: Candidate, evidence: Critique, journal: Journal) -> None:
        """Asks the first model what the evidence teaches; its lesson goes into the playbook."""
        blocks = {"parents": _shown([candidate]), "evidence": data(evidence_lines(evidence))}
        model = next(iter(self.exchange.endpoints))
        ask = Ask(model, "critic", self._system, prompt("critic", **blocks), Diagnosis)
        asks = self.exchange.affordable([ask] if evidence.findings else [])
        for answer in self.exchange.perform(journal, f"critic/{candidate.id}", asks, _fine):
            if answer.content is not None:
                self.playbook.add(answer.content["lesson"], candidate.id)

    def tell(self, candidate: Candidate, gain: float, cost: float) -> None:
        """How much better than its parents a proposal of ours came out, and what it took."""
        if candidate.operator in self.bandit.arms:
            self.bandit.tell(candidate.operator, gain, cost)
        if candidate.advice:
            number = candidate.born
            self.strategies.tell(candidate.advice, number, candidate.operator, gain)
        self._beside.tell(candidate, gain, cost)

    def _plan(self, brief: Brief, advice: str) -> Ask:
        arm = self.bandit.choose(brief.rng)
        self.bandit.begin(arm)
        operator, _, model = arm.partition("@")
        parents = brief.parents(1 if operator == "improve" else SHOWN)
        known = dict(brief.evidence_by_id)
        if not parents:
            operator = "new"
        lessons = self.playbook.best(LESSONS)
        lesson = brief.rng.choice(lessons).text if lessons else ""
        blanks = {"parents": _shown(parents), "lessons": _lesson(lesson), "tools": self._tools}
        if operator == "improve":
            found = known.get(parents[0].id) or next(iter(known.values()), Critique())
            blanks |= _scores(brief, parents[0]) | {"evidence": data(evidence_lines(found))}
        ids = tuple(parent.id for parent in parents)
        system, user = f"{self._system}\n{advice}", prompt(operator, **blanks)
        return Ask(model, arm, system, user, Proposal, ids, lesson, advice=name_of(advice))

    def _repair(self, ask: Ask, answer: Answered) -> Ask:
        assert answer.content is not None
        blanks = {"parents": data(answer.content["source"]), "problems": data(answer.problems)}
        return replace(ask, user=prompt("repair", **blanks))

    def _check(self, form: BaseModel) -> str:
        return self._problems(form.source) if isinstance(form, Proposal) else ""


def _fine(form: BaseModel) -> str:
    return ""


def _draft(ask: Ask, answer: Answered, wave: int) -> Candidate | None:
    """The candidate of an answer, unless it is to be repaired.

    After the last repair a faulty one goes on: the screen records its fate.
    """
    if answer.content is None or (answer.problems and wave < REPAIRS):
        return None
    spec = PolicySpec("llm", source=answer.content["source"])
    return Candidate(spec, ask.operator, ask.parents, lesson=ask.lesson, advice=ask.advice)


def _shown(parents: Sequence[Candidate]) -> str:
    return "\n\n".join(data(parent.spec.source) for parent in parents) or "(there are none yet)"


def _lesson(text: str) -> str:
    return f"A lesson from earlier failures, as data:\n{data(text)}" if text else ""


def _scores(brief: Brief, parent: Candidate) -> dict[str, str]:
    entry = next((e for e in brief.archive.entries if e.candidate.id == parent.id), None)
    if entry is None:
        return {"accuracy": "unknown", "cost": "an unknown share"}
    score = entry.score
    return {
        "accuracy": f"{score.accuracy.estimate:.2f} on {score.n} tasks",
        "cost": f"{score.cost_ratio.estimate:.2f}",
    }
