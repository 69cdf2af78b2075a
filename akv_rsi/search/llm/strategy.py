"""The advice in the proposer's prompt evolves as policies do: a challenger, pairs, and the gate.

Each round some questions are asked under the incumbent's advice and as many under the challenger's.
A round is a pair: whether either led to a candidate better than its parents. Only a verdict beyond
noise replaces the incumbent; a challenger that is not told apart after `PATIENCE` pairs makes way.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict

from akv_rsi.search.llm.prompts import prompt
from akv_rsi.tasks import stats

PATIENCE = 16  # pairs
FEWEST = 5  # below this no sign test can be sure


class Strategies:
    """The incumbent's advice, and a challenger's, if there is one.

    ``record`` holds a line for each candidate that was measured, for whoever writes the next one.
    """

    def __init__(self) -> None:
        self.incumbent = prompt("strategy")
        self.challenger: str | None = None
        self.record: list[str] = []
        self._won: defaultdict[tuple[str, int], bool] = defaultdict(bool)
        self._since = 0

    @property
    def texts(self) -> list[str]:
        """The advice to ask under this round, in turn."""
        return [self.incumbent, *([self.challenger] if self.challenger else [])]

    def challenge(self, text: str, number: int) -> None:
        """A challenger from round ``number`` on; the incumbent's own text is none."""
        if text.strip() and name_of(text) != name_of(self.incumbent):
            self.challenger, self._since = text.strip() + "\n", number

    def tell(self, name: str, number: int, operator: str, gain: float) -> None:
        """A candidate asked for in round ``number`` under the advice called ``name``."""
        self._won[name, number] |= gain > 0
        self.record.append(f"{operator}: {gain:+.3f}")

    def judge(self, number: int) -> stats.Verdict | None:
        """The verdict on the challenger before round ``number``; None while it is too early.

        ``better`` makes it the incumbent; any verdict makes room for another.
        """
        rounds = range(self._since, number)
        if self.challenger is None or len(rounds) < FEWEST:
            return None
        ours, theirs = (
            [self._won[name_of(text), i] for i in rounds]
            for text in (self.challenger, self.incumbent)
        )
        verdict = stats.compare(ours, theirs).verdict
        if verdict == "undecided" and len(rounds) < PATIENCE:
            return None
        if verdict == "better":
            self.incumbent = self.challenger
        self.challenger = None
        return verdict


def name_of(text: str) -> str:
    """Eight hex digits that name an advice."""
    return hashlib.sha256(text.strip().encode()).hexdigest()[:8]
