"""Which operator, of which model, to use next: gain for its cost, with room for the unknown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

EXPLORE = 0.5
FORGET = 0.97  # what is old counts less: an operator that helped early may be spent
LEAST_COST = 1e-3


@dataclass(slots=True)
class Pull:
    """What an arm has brought: discounted numbers of pulls, gains and costs."""

    pulls: float = 0.0
    gain: float = 0.0
    cost: float = 0.0


class Bandit:
    """Chooses arms by an upper bound on their gain, divided by their mean cost.

    A gain lies in 0 to 1; a cost is any positive share, the same unit for all arms. Every arm is
    tried once before any is tried again.
    """

    def __init__(self, arms: Sequence[str]) -> None:
        self.arms = {name: Pull() for name in arms}

    def choose(self, rng: Random) -> str:
        """The next arm; ``rng`` breaks ties."""
        total = sum(pull.pulls for pull in self.arms.values())
        values = {name: self._value(pull, total) for name, pull in self.arms.items()}
        best = max(values.values())
        return rng.choice([name for name, value in values.items() if value == best])

    def begin(self, arm: str) -> None:
        """The arm is being tried: until `tell`, its gain is unknown and counted as none."""
        for pull in self.arms.values():
            pull.pulls, pull.gain, pull.cost = (
                FORGET * value for value in (pull.pulls, pull.gain, pull.cost)
            )
        self.arms[arm].pulls += 1

    def tell(self, arm: str, gain: float, cost: float) -> None:
        """What the trial brought and took."""
        self.arms[arm].gain += min(1.0, max(0.0, gain))
        self.arms[arm].cost += cost

    def _value(self, pull: Pull, total: float) -> float:
        if pull.pulls == 0:
            return math.inf
        bound = pull.gain / pull.pulls + EXPLORE * math.sqrt(math.log(1 + total) / pull.pulls)
        return bound / max(pull.cost / pull.pulls, LEAST_COST)

    def state(self) -> dict[str, list[float]]:
        """All it knows, as plain data."""
        return {name: [pull.pulls, pull.gain, pull.cost] for name, pull in self.arms.items()}

    def restore(self, state: Mapping[str, Sequence[float]]) -> None:
        """Takes over what another one knew of arms that this one has too."""
        for name in self.arms.keys() & state.keys():
            self.arms[name] = Pull(*state[name])
