"""What improved, when, and what caused it: the search's generations as data."""

from __future__ import annotations

from dataclasses import dataclass

from akv_rsi.search.race import Runner


@dataclass(frozen=True, slots=True)
class Advance:
    """The leader of an arm after a round, told whenever it is another one or better known.

    The arm had spent ``episodes``. The leader came from ``operator``, by ``lesson`` if it had one,
    and was scored on ``n`` train tasks.
    """

    arm: str
    round: int
    episodes: float
    id: str
    operator: str
    lesson: str
    n: int
    accuracy: float
    cost_ratio: float


class Progress:
    """The advances of all arms, in order."""

    def __init__(self) -> None:
        self.advances: list[Advance] = []
        self._leaders: dict[str, tuple[str, int]] = {}

    def note(self, arm: str, number: int, episodes: float, leaders: list[Runner]) -> Advance | None:
        """After round ``number`` of an arm: the advance, if there was one."""
        if not leaders:
            return None
        candidate, score = leaders[0].candidate, leaders[0].scores[-1]
        before = self._leaders.get(arm)
        self._leaders[arm] = (candidate.id, score.n)
        if before == self._leaders[arm]:
            return None
        advance = Advance(
            arm,
            number,
            round(episodes, 3),
            candidate.id,
            candidate.operator,
            candidate.lesson,
            score.n,
            score.accuracy.estimate,
            score.cost_ratio.estimate,
        )
        self.advances.append(advance)
        return advance
