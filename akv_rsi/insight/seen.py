"""A policy as the record of a run shows it: what it is, where it came from, how it did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from akv_rsi.policies.spec import PolicySpec
from akv_rsi.search.candidate import Candidate, Score, score
from akv_rsi.tasks.cost import PriceModel
from akv_rsi.tasks.episode import Episode, Split, TaskRef
from akv_rsi.types import Usage

SPLITS: tuple[Split, ...] = ("train", "validation", "test")


@dataclass(frozen=True, slots=True)
class Screening:
    """What recorded conversations said of it; see `akv_rsi.search.screen.Screened`."""

    fate: str
    ratio: float
    safety: float
    support: float


@dataclass
class Standing:
    """A policy's episodes of one split beside keep-everything's on the same tasks."""

    ours: list[Episode]
    full: list[Episode]
    prices: PriceModel

    @cached_property
    def accuracy(self) -> float:
        """The share of tasks it solved."""
        return sum(e.success for e in self.ours) / len(self.ours)

    @cached_property
    def ratio(self) -> float:
        """Its cost, as a share of keeping everything."""
        return sum(e.cost for e in self.ours) / sum(e.cost for e in self.full)

    @property
    def known(self) -> Score | None:
        """The score, if it was asked for before."""
        return self.__dict__.get("score")

    @cached_property
    def score(self) -> Score:
        """Both with their intervals, which take a while."""
        return score(self.ours, self.full, self.prices)


@dataclass
class Seen:
    """One policy of a run.

    ``origin`` is the arm that thought of it first, ``arms`` are those that had it run;
    ``screening`` is None for the references.
    """

    candidate: Candidate
    origin: str = ""
    arms: list[str] = field(default_factory=list)
    screening: Screening | None = None
    episodes: dict[Split, dict[TaskRef, Episode]] = field(default_factory=dict)
    _standings: dict[tuple[Split, int], Standing] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The policy's id."""
        return self.candidate.id

    @property
    def spec(self) -> PolicySpec:
        """The policy as data."""
        return self.candidate.spec

    @property
    def label(self) -> str:
        """What people call it: a built-in one by its name and numbers, another by its id."""
        if self.spec.name == "grammar" or self.candidate.operator not in ("seed", "tune", ""):
            return self.id[:8]
        numbers = (f"{name}={value:.3g}" for name, value in self.spec.tunables)
        return " ".join((self.spec.name, *numbers))

    @property
    def fate(self) -> str:
        """Why it was not run; empty if it was."""
        return self.screening.fate if self.screening else ""

    @property
    def usage(self) -> Usage:
        """What its sealed test used, or its training where it had no test."""
        rows = self.episodes.get("test") or self.episodes.get("train") or {}
        return sum((episode.usage for episode in rows.values()), Usage())

    def standing(
        self, split: Split, full: Mapping[TaskRef, Episode], prices: PriceModel
    ) -> Standing | None:
        """How it did on a split; None where it was not run."""
        own = self.episodes.get(split, {})
        tasks = [task for task in own if task in full]
        if not tasks:
            return None
        key = (split, len(tasks))
        if key not in self._standings:
            ours, theirs = [own[task] for task in tasks], [full[task] for task in tasks]
            self._standings[key] = Standing(ours, theirs, prices)
        return self._standings[key]
