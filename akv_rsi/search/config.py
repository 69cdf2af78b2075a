"""What can be asked of a search."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from akv_rsi.config import from_mapping
from akv_rsi.errors import ConfigError
from akv_rsi.tasks.suites import BUILT_IN

PROPOSERS = ("grammar",)
SAFETY = 0.03
FINALISTS = 3
SEARCH, SAMPLES, BASELINES = ARMS = ("search", "best-of-n", "baselines")
# Where numbers are looked for: on recorded trajectories before a structure is run, and in later
# rounds for structures that were run.
TUNING = ("screen", "retune")
# On recorded conversations: the first rung, and how many candidates could be run on all of them.
FEWEST_TASKS, ROUNDS = 4, 10


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """A search, complete: with the same code, the same configuration gives the same archive.

    ``budget`` is the cost allowed, as a share of keeping everything. ``train``, ``validation`` and
    ``test`` are numbers of tasks. Each of the three arms (search, best-of-N, hand-written) may
    spend ``episodes``, of which ``finalists`` times ``validation`` are kept for the end. (The last
    place in the search's arm is for its leader in milder numbers, see `akv_rsi.search.slack`.) A
    round brings up to ``width`` new candidates, ``rungs`` are the numbers of train tasks at which
    the best ``1/eta`` go on, and a candidate enters the archive from the rung ``archived`` on.
    Candidates are screened on ``recordings`` trajectories (those that lose nothing there on
    ``reviews`` more), ``overdraw`` times as many as are run, and before the first round ``warmup``
    times as many again: the screen costs no episodes.
    ``evidence`` says whether the search criticises its candidates, at the cost of some episodes.
    A comparison of searches leaves out some ``arms``, or some stages of ``tuning``.

    With ``traces``, paths of recorded transcripts, the tasks are those conversations, told policies
    as ``span`` reliable tokens; ``found_on`` says in a line what they are. The share of calls kept
    then stands for the accuracy, by the ``model``'s judgement or, without one, by the risk that
    `akv_rsi.tasks.traces.objective.Risk` sees.

    The models ``llm`` at one endpoint propose policies too; ``llm_key_env`` names the variable that
    holds the key, ``llm_grammar`` says that their server, vLLM, can hold programs to a grammar, and
    ``llm_price`` is dollars per million tokens in and out. ``max_usd`` dollars,
    ``max_evals`` episodes in all and ``max_time`` seconds are never exceeded, as far as can be told
    before a round. ``warm_start`` is a finished run whose best policies and lessons this one begins
    with.
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
    episodes: int = 516
    finalists: int = FINALISTS
    width: int = 6
    rungs: tuple[int, ...] = (6, 18, 48, 96)
    eta: int = 3
    archived: int = 1
    recordings: int = 12
    reviews: int = 24
    overdraw: int = 8
    warmup: int = 10
    full: bool = False
    evidence: bool = False
    arms: tuple[str, ...] = ARMS
    tuning: tuple[str, ...] = TUNING
    traces: tuple[str, ...] = ()
    span: int = 48_000
    found_on: str = ""
    llm: tuple[str, ...] = ()
    llm_base_url: str = "https://api.openai.com/v1"
    llm_key_env: str = ""
    llm_grammar: bool = False
    llm_price: tuple[float, float] = (0.0, 0.0)
    max_usd: float | None = None
    max_evals: int | None = None
    max_time: float | None = None
    warm_start: str = ""

    @property
    def measure(self) -> str:
        """What its accuracies are, in a word or two."""
        return "calls kept" if self.traces else "accuracy"

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
        for name, known in (("arms", ARMS), ("tuning", TUNING)):
            if unknown := set(getattr(self, name)) - set(known):
                raise ConfigError(f"unknown {name}: {', '.join(sorted(unknown))}")
        if not self.arms:
            raise ConfigError(f"a search needs an arm: {', '.join(ARMS)}")
        if self.evidence and self.traces:
            raise ConfigError("transcripts hold no tasks to run again, so there is no evidence")
        self._check_sizes()
        self._check_limits()

    @property
    def closing(self) -> int:
        """Episodes that the end of the search takes at most: validation and the sealed test."""
        tested = 14 if self.full else 7
        return self.validation * (1 + len(self.arms) * self.finalists) + self.test * tested

    @property
    def opening(self) -> int:
        """Episodes before the second round: the reference, the A/A check, a round of all arms."""
        return self.train + self.rungs[0] * (1 + len(self.arms) * self.width)

    def _check_limits(self) -> None:
        for name in ("max_usd", "max_evals", "max_time"):
            if (limit := getattr(self, name)) is not None and not limit > 0:
                raise ConfigError(f"{name} must be above 0, not {limit:g}")
        least = self.opening + self.closing
        if self.max_evals is not None and self.max_evals < least:
            raise ConfigError(
                f"{self.max_evals} evaluations are too few: the reference, one round and the end "
                f"of the search take up to {least}; use --quick, or allow more"
            )
        if self.llm and self.max_usd is not None and not any(self.llm_price):
            raise ConfigError("--max-usd needs --llm-price: dollars per million tokens, in and out")

    def _check_sizes(self) -> None:
        names = ["train", "validation", "test", "episodes", "finalists", "width", "recordings"]
        names += ["overdraw", "warmup", "span"]
        for name in names:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.reviews < 0:
            raise ConfigError(f"reviews must not be negative, not {self.reviews}")
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


def recorded_config(values: Mapping[str, Any]) -> SearchConfig:
    """The configuration in a run's ``config.json``; JSON knows no tuples."""
    plain = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
    return from_mapping(SearchConfig, plain)


def sizes_for(train: int, validation: int, test: int, quick: bool) -> dict[str, Any]:
    """The sizes of a search that uses all of so many tasks."""
    rungs = [train]
    while rungs[0] >= 3 * FEWEST_TASKS:
        rungs.insert(0, rungs[0] // 3)
    finalists = 2 if quick else FINALISTS
    return {
        "train": train,
        "validation": validation,
        "test": test,
        "finalists": finalists,
        "episodes": (2 if quick else ROUNDS) * train + finalists * validation,
        "rungs": tuple(rungs),
        # A replay of a recording is all that an episode is, so less is screened than for a model.
        "recordings": min(train, 9),
        "reviews": 0,
        "overdraw": 2 if quick else 6,
        "warmup": 1 if quick else 5,
    }


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
