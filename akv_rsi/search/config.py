"""What can be asked of a search."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from akv_rsi.errors import ConfigError
from akv_rsi.tasks.suites import BUILT_IN

PROPOSERS = ("grammar",)
SAFETY = 0.015


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """A search, complete: with the same code, the same configuration gives the same archive.

    ``budget`` is the cost allowed, as a share of keeping everything. ``train``, ``validation`` and
    ``test`` are numbers of tasks. Each of the three arms (search, best-of-N, hand-written) may
    spend ``episodes``, of which ``finalists`` times ``validation`` are kept for the end. A
    round brings up to ``width`` new candidates, ``rungs`` are the numbers of train tasks at which
    the best ``1/eta`` go on, and a candidate enters the archive from the rung ``archived`` on.
    Candidates are screened on ``recordings`` trajectories, ``overdraw`` times as many as are run,
    and before the first round ``warmup`` times as many again: the screen costs no episodes.
    ``evidence`` says whether the search criticises its candidates, at the cost of some episodes.
    """

    budget: float = 0.8
    seed: int = 0
    suites: tuple[str, ...] = BUILT_IN
    model: str = "reference"
    prices: str = "claude"
    proposer: str = "grammar"
    train: int = 96
    validation: int = 96
    test: int = 96
    episodes: int = 480
    finalists: int = 2
    width: int = 6
    rungs: tuple[int, ...] = (6, 18, 48, 96)
    eta: int = 3
    archived: int = 1
    recordings: int = 6
    overdraw: int = 8
    warmup: int = 10
    full: bool = False
    evidence: bool = False

    @property
    def target(self) -> float:
        """The cost that candidates are bred for: on other tasks it comes out a little different."""
        return self.budget * (1 - SAFETY)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.budget) and self.budget > 0):
            raise ConfigError(f"budget must be above 0, not {self.budget:g}")
        if self.budget > 1:
            raise ConfigError(
                f"budget {self.budget:g} is out of reach: 1 is what keeping everything costs, and "
                "that satisfies it; ask for at most 1"
            )
        if self.seed < 0:
            raise ConfigError(f"seed must not be negative, not {self.seed}")
        if self.proposer not in PROPOSERS:
            raise ConfigError(f"unknown proposer {self.proposer!r}: use {', '.join(PROPOSERS)}")
        self._check_sizes()

    def _check_sizes(self) -> None:
        names = ["train", "validation", "test", "episodes", "finalists", "width", "recordings"]
        names += ["overdraw", "warmup"]
        for name in names:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not self.suites or len(set(self.suites)) != len(self.suites):
            raise ConfigError(f"suites must be named, each once, not {', '.join(self.suites)!r}")
        rungs = self.rungs
        if not rungs or rungs[0] < 1 or any(a >= b for a, b in pairwise(rungs)):
            raise ConfigError(f"rungs must grow, not {rungs}")
        if rungs[-1] != self.train or self.eta < 2 or not 1 <= self.archived <= len(rungs):
            raise ConfigError(
                f"the last rung must be all {self.train} train tasks, eta at least 2 and archived "
                f"one of {len(rungs)} rungs"
            )
        least = self.finalists * self.validation + self.train
        if self.episodes < least:
            raise ConfigError(
                f"{self.episodes} episodes are too few: {self.finalists} finalists on "
                f"{self.validation} validation tasks and one candidate on {self.train} train tasks "
                f"take {least}"
            )


# Half a minute on two cores: for a first look, and for tests.
QUICK = {
    "train": 12,
    "validation": 12,
    "test": 12,
    "episodes": 60,
    "finalists": 2,
    "width": 4,
    "rungs": (3, 6, 12),
    "eta": 2,
    "recordings": 6,
    "overdraw": 2,
    "warmup": 2,
}
