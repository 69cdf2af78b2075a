"""Who thinks of new policies. A proposer gives programs; the tuner gives them numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from akv_rsi.policies.spec import PolicySpec
from akv_rsi.policies.tunables import redeclare
from akv_rsi.search.archive import Archive
from akv_rsi.search.candidate import Candidate
from akv_rsi.search.combine import cross, join
from akv_rsi.search.cure import economise, heed, protect
from akv_rsi.search.findings import Critique
from akv_rsi.search.grammar import Grammar, render
from akv_rsi.search.journal import Journal
from akv_rsi.search.operators import mutate, simplify
from akv_rsi.search.playbook import Playbook


@dataclass(frozen=True, slots=True)
class Brief:
    """What a proposer is told.

    The ``archive``; the most ``promising`` candidates by recorded trajectories alone, most of which
    were never run; those that are ``safe`` there, whatever they save, the cheapest first; how many
    structures it ``made`` before; and the ``evidence`` on candidates that were criticised.
    """

    archive: Archive
    promising: Sequence[Candidate]
    safe: Sequence[Candidate]
    made: int
    rng: Random
    evidence: Sequence[tuple[Candidate, Critique]] = ()

    @property
    def evidence_by_id(self) -> dict[str, Critique]:
        """The evidence by the id of the candidate it is about."""
        return {candidate.id: evidence for candidate, evidence in self.evidence}

    def parents(self, count: int) -> list[Candidate]:
        """Programs to breed from: from the archive and from the promising with equal chances."""
        pools = [
            [entry.candidate for entry in self.archive.parents(count, self.rng)],
            list(self.promising),
        ]
        pools = [[c for c in pool if c.spec.kind == "program"] for pool in pools]
        pools = [pool for pool in pools if pool]
        return [self.rng.choice(self.rng.choice(pools)) for _ in range(count if pools else 0)]


class Proposer(Protocol):
    """Proposes structures. What it knows it was told: a resumed run does not ask again.

    What it returns may be ill-formed, dear or known already: the screen decides, and a failure
    costs that one proposal.
    """

    @property
    def name(self) -> str:
        """What the run's summary calls it."""
        ...

    def consult(self, brief: Brief, journal: Journal, key: str) -> None:
        """Asks others, durably, before the proposals of the round called ``key`` are made."""
        ...

    def propose(self, brief: Brief, count: int) -> list[Candidate]:
        """Up to ``count`` proposals; an empty list when it has nothing more to say."""
        ...

    def learn(self, candidate: Candidate, evidence: Critique, journal: Journal) -> None:
        """A candidate was criticised."""
        ...

    def tell(self, candidate: Candidate, gain: float, cost: float) -> None:
        """A proposal was run: how much better it is than its parents, and the share it took."""
        ...


class Alone:
    """A proposer that asks nobody and keeps nothing."""

    def consult(self, brief: Brief, journal: Journal, key: str) -> None:
        """Nothing."""

    def learn(self, candidate: Candidate, evidence: Critique, journal: Journal) -> None:
        """Nothing: the brief holds the evidence."""

    def tell(self, candidate: Candidate, gain: float, cost: float) -> None:
        """Nothing."""


class ListProposer(Alone):
    """The smallest proposer: given policies, once each, and then nothing."""

    name = "list"

    def __init__(self, specs: Sequence[PolicySpec]) -> None:
        self.specs = specs

    def propose(self, brief: Brief, count: int) -> list[Candidate]:
        """The next ``count`` of the list."""
        return [Candidate(spec, "seed") for spec in self.specs[brief.made : brief.made + count]]


# How often each operator is used. Best-of-N draws from the same grammar and never looks back.
EVOLVE: Mapping[str, int] = {"new": 3, "mutate": 5, "cross": 3, "join": 5, "simplify": 1}
BEST_OF_N: Mapping[str, int] = {"new": 1}
# Safe policies that are joined to one of the cheapest of them.
CHEAPEST, JOINED = 10, 3
# With evidence at hand, undirected changes are rarer.
DIRECTED: Mapping[str, int] = {**EVOLVE, "protect": 4, "economise": 4, "heed": 2}
HEEDED = 4  # of the lessons, so many are followed


class GrammarProposer(Alone):
    """The ``seeds``, and then programs of the grammar and edits of what the archive holds."""

    name = "grammar"

    def __init__(
        self,
        grammar: Grammar,
        operators: Mapping[str, int] = EVOLVE,
        seeds: Sequence[PolicySpec] = (),
        playbook: Playbook | None = None,
    ) -> None:
        self.grammar = grammar
        self.playbook = playbook or Playbook()
        self.operators = operators
        self._seeds = ListProposer(seeds)

    def propose(self, brief: Brief, count: int) -> list[Candidate]:
        """``count`` proposals, or fewer when an operator did not apply."""
        seeds = self._seeds.propose(brief, count)
        made = [self._make(brief) for _ in range(count - len(seeds))]
        return [*seeds, *(candidate for candidate in made if candidate is not None)]

    def _make(self, brief: Brief) -> Candidate | None:
        rng = brief.rng
        operators = DIRECTED if brief.evidence else self.operators
        operator = rng.choices(list(operators), list(operators.values()))[0]
        if operator in ("protect", "economise"):
            return self._cure(operator, brief)
        if operator == "heed":
            return self._heed(brief)
        if operator == "join" and brief.safe:
            first, *others = rng.choice(brief.safe[:CHEAPEST]), *rng.choices(brief.safe, k=JOINED)
            joined = join(first.spec.source, [_settled(other) for other in others])
            return _child(joined, operator, (first, *others))
        parents = [] if operator == "new" else brief.parents(2)
        if not parents:
            source = render(self.grammar.program(rng))
            return Candidate(PolicySpec("grammar", source=source, trusted=True), "new")
        first, second = parents[0], parents[-1]
        if operator == "cross" and first.id != second.id:
            source_or_none = cross(first.spec.source, _settled(second), rng)
            return _child(source_or_none, operator, (first, second))
        operator = "simplify" if operator == "simplify" else "mutate"
        change = simplify if operator == "simplify" else mutate
        return _child(change(first.spec.source, self.grammar, rng), operator, (first,))

    def _cure(self, operator: str, brief: Brief) -> Candidate | None:
        """A change that evidence asks for: of the candidate it is about, or of another one."""
        criticised, evidence = brief.rng.choice(brief.evidence)
        parent = brief.rng.choice([criticised, *brief.parents(1)])
        change = protect if operator == "protect" else economise
        cured = change(parent.spec.source, evidence, self.grammar, brief.rng)
        if cured is None or cured.source == parent.spec.source:
            return None
        return _child(cured.source, operator, (parent,), cured.lesson)

    def _heed(self, brief: Brief) -> Candidate | None:
        """A rule that has helped elsewhere."""
        lessons, parents = self.playbook.best(HEEDED), brief.parents(1)
        if not lessons or not parents:
            return None
        lesson = brief.rng.choice(lessons).text
        own = self.playbook.is_own(lesson)
        return _child(heed(parents[0].spec.source, lesson), "heed", (parents[0],), lesson, own)

    def tell(self, candidate: Candidate, gain: float, cost: float) -> None:
        """What following its lesson brought."""
        if candidate.lesson:
            self.playbook.add(candidate.lesson, candidate.id)
            self.playbook.tell(candidate.lesson, gain)


def _settled(donor: Candidate) -> str:
    """Its source with its numbers as defaults: rules that are handed on keep them."""
    return redeclare(donor.spec.source, donor.values)


def _child(
    source: str | None,
    operator: str,
    parents: tuple[Candidate, ...],
    lesson: str = "",
    ours: bool = True,
) -> Candidate | None:
    """A candidate of this source; it inherits the first parent's numbers where they still exist.

    What is made of our own parts is our own: it is as trusted as its parents. A ``lesson`` that is
    not ``ours`` is no such part.
    """
    if source is None:
        return None
    trusted = ours and all(parent.spec.trusted for parent in parents)
    spec = PolicySpec("grammar", source=source, tunables=parents[0].spec.tunables, trusted=trusted)
    ids = tuple(parent.id for parent in parents)
    return Candidate(spec, operator, ids, lesson=lesson)
