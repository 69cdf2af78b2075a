"""The policies worth remembering: a Pareto front over accuracy and cost, and behavioural niches.

A1  no member of the front is dominated by another
A2  a niche is only taken over by a better policy of the same niche
A3  every entry was scored on the same number of tasks or more, and has no flaw
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from akv_rsi.search.candidate import Candidate, Score

BREEDERS = 5
Niche = tuple[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Entry:
    """A candidate, its score, and the verbs it is made of."""

    candidate: Candidate
    score: Score
    verbs: tuple[str, ...]

    @property
    def niche(self) -> Niche:
        """Its cell: cost ratio in steps of a tenth, and its verbs."""
        return (int(self.score.cost_ratio.estimate * 10), self.verbs)

    def dominates(self, other: Entry) -> bool:
        """Whether it is at least as accurate and as cheap, and better in one."""
        ours, theirs = _objectives(self), _objectives(other)
        return ours != theirs and all(a >= b for a, b in zip(ours, theirs, strict=True))


def _objectives(entry: Entry) -> tuple[float, float]:
    return (entry.score.accuracy.estimate, -entry.score.cost_ratio.estimate)


class Archive:
    """Entries by candidate id; a candidate scored on more tasks replaces its earlier entry."""

    def __init__(self, budget: float, minimum: int) -> None:
        self.budget = budget
        self.minimum = minimum
        self._entries: dict[str, Entry] = {}
        self._owners: dict[Niche, str] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, identity: str) -> bool:
        return identity in self._entries

    @property
    def entries(self) -> list[Entry]:
        """All entries, the best first."""
        return sorted(self._entries.values(), key=self._key, reverse=True)

    @property
    def front(self) -> list[Entry]:
        """The entries that no other dominates, the most accurate first."""
        every = self._entries.values()
        front = [e for e in every if not any(other.dominates(e) for other in every)]
        return sorted(front, key=lambda e: (_objectives(e), e.candidate.id), reverse=True)

    @property
    def niches(self) -> dict[Niche, Entry]:
        """The best entry of every niche, in the order of the niches."""
        return {niche: self._entries[self._owners[niche]] for niche in sorted(self._owners)}

    def add(self, entry: Entry) -> bool:
        """Takes the entry in, unless it was scored on too few tasks; whether it owns its niche."""
        if entry.score.n < self.minimum:
            return False
        self._entries[entry.candidate.id] = entry
        self._settle(entry.candidate.id)
        return self._owners[entry.niche] == entry.candidate.id

    def discard(self, identity: str) -> None:
        """Forgets a candidate in which a flaw was found, if it is there."""
        self._entries.pop(identity, None)
        self._settle(identity)

    def _settle(self, changed: str) -> None:
        """Who owns which niche, after the entry of ``changed`` came, moved or went."""
        self._owners = {niche: owner for niche, owner in self._owners.items() if owner != changed}
        for entry in self._entries.values():
            owner = self._owners.get(entry.niche)
            if owner is None or self._key(entry) > self._key(self._entries[owner]):
                self._owners[entry.niche] = entry.candidate.id

    def best(self, count: int = 1) -> list[Entry]:
        """The most promising entries: accurate, and within the budget or near it."""
        return self.entries[:count]

    def parents(self, count: int, rng: Random) -> list[Entry]:
        """Entries to breed from: the best, the front and the niches have equal chances."""
        if not self._entries:
            return []
        pools = (self.best(BREEDERS), self.front, list(self.niches.values()))
        return [rng.choice(rng.choice(pools)) for _ in range(count)]

    def check(self) -> None:
        """Raises `AssertionError` when an invariant does not hold."""
        front, every = self.front, list(self._entries.values())
        assert not any(a.dominates(b) for a in front for b in front), "A1"
        for niche, owner in self.niches.items():
            rivals = [e for e in every if e.niche == niche]
            assert self._key(owner) == max(map(self._key, rivals)), "A2"
        assert {e.niche for e in every} == set(self._owners), "A2"
        assert all(e.score.n >= self.minimum for e in every), "A3"

    def _key(self, entry: Entry) -> tuple[tuple[float, float], int, str]:
        return (entry.score.promise(self.budget), entry.score.n, entry.candidate.id)
