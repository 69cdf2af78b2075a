"""A run read from its store, as far as it has come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from akv_rsi.errors import ConfigError, RunCorrupt, StoreError
from akv_rsi.insight.causes import Setting
from akv_rsi.insight.seen import SPLITS, Screening, Seen, Standing
from akv_rsi.policies import library
from akv_rsi.search.candidate import Candidate
from akv_rsi.search.choice import ORACLE, keep_everything
from akv_rsi.search.codec import unpack
from akv_rsi.search.config import BASELINES, recorded_config
from akv_rsi.search.store import Event, Store, is_locked, read_config, read_facts
from akv_rsi.tasks.cost import load_prices
from akv_rsi.tasks.episode import Split, TaskRef
from akv_rsi.types import Trajectory

if TYPE_CHECKING:
    from akv_rsi.search.report import SearchReport


@dataclass(frozen=True, slots=True)
class Step:
    """One event of the run: what was done, when it was recorded, and how long it took."""

    seq: int
    kind: str
    key: str
    at: float
    seconds: float
    body: Any


class Run:
    """Everything a run's events say; `refresh` reads those that were added since.

    Trajectories are read from the store when they are asked for. Raises `StoreError` for what is no
    run, or one of another version, and `RunCorrupt` for one that is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = recorded_config(read_config(path))
        self.prices = load_prices(self.config.prices)
        self.budget = self.config.budget
        self.full = Seen(Candidate(keep_everything(), ""))
        self.oracle = Seen(Candidate(ORACLE, ""))
        self.policies = {seen.id: seen for seen in (self.full, self.oracle)}
        self.steps: list[Step] = []
        self.best_id = ""  # of a finished run
        self._kept: dict[tuple[str, Split], tuple[int, int, tuple[TaskRef, ...]]] = {}
        self._trajectories: dict[tuple[str, Split], dict[TaskRef, Trajectory]] = {}
        self.refresh()

    @property
    def state(self) -> str:
        """``finished``, ``running`` or ``stopped``; a stopped one can be resumed."""
        if self.best_id:
            return "finished"
        return "running" if is_locked(self.path) else "stopped"

    @property
    def report(self) -> SearchReport | None:
        """What a finished run found; None for another."""
        return self._report if self.best_id else None

    @cached_property
    def _report(self) -> SearchReport | None:
        from akv_rsi.search.report import load_report  # it takes long to load

        with Store.read(self.path) as store:
            return load_report(store)

    @property
    def name(self) -> str:
        """The run's own name."""
        return self.path.resolve().name

    @property
    def target(self) -> float:
        """The cost ratio that candidates are bred for."""
        return self.config.target

    @property
    def best(self) -> Seen | None:
        """What the search found; while it is unfinished, the most promising so far."""
        if self.best_id:
            return self.policies[self.best_id]
        ranked = [(s, seen) for seen in self.ran() if (s := self.standing(seen)) and s.ours]
        if not ranked:
            return None
        within = [pair for pair in ranked if pair[0].ratio <= self.budget] or ranked
        return max(within, key=lambda p: (len(p[0].ours), p[0].accuracy, -p[0].ratio))[1]

    def refresh(self) -> int:
        """Reads the events that were added; returns how many."""
        with Store.read(self.path) as store:
            before = len(self.steps)
            for event in store.events(start=before):
                self._take(event)
                step = Step(event.seq, event.kind, event.key, event.at, event.seconds, event.body)
                self.steps.append(step)
        return len(self.steps) - before

    def ran(self) -> Iterator[Seen]:
        """The candidates that were run; keep-everything and the oracle are none."""
        references = (self.full.id, self.oracle.id)
        return (s for s in self.policies.values() if s.episodes and s.id not in references)

    def standing(self, seen: Seen, split: Split = "train") -> Standing | None:
        """How a policy did on a split, against keeping everything."""
        return seen.standing(split, self.full.episodes.get(split, {}), self.prices)

    def find(self, identity: str) -> Seen:
        """The policy whose id begins so; `ConfigError` when there is none or several."""
        found = [seen for key, seen in self.policies.items() if key.startswith(identity)]
        if len(found) != 1:
            raise ConfigError(f"{self.path} has {len(found) or 'no'} policies {identity!r}")
        return found[0]

    def recorded(self, seen: Seen) -> dict[Split, tuple[TaskRef, ...]]:
        """The tasks of which a policy's conversations are kept, by split."""
        kept = {split: self._kept.get((seen.id, split)) for split in reversed(SPLITS)}
        return {split: place[2] for split, place in kept.items() if place is not None}

    def trajectory(self, seen: Seen, task: TaskRef) -> Trajectory | None:
        """A policy's conversation on a task, where it is kept."""
        key = (seen.id, task.split)
        if key not in self._kept:
            return None
        if key not in self._trajectories:
            self._unpack(self._kept[key][0])
        return self._trajectories[key].get(task)

    def setting(self) -> Setting:
        """What policies were told besides the conversation.

        `StoreError` for a run that is too old to have recorded it, unless its model is ours.
        """
        span = read_facts(self.path).get("reliable_span")
        if span is None and self.config.model == "reference":
            from akv_rsi.tasks.reference.model import RELIABLE_SPAN

            span = RELIABLE_SPAN
        if span is None:
            raise StoreError(f"{self.path} did not record the reliable span of its model")
        return Setting(self.prices, span, self.budget)

    def _take(self, event: Event) -> None:
        if event.kind == "proposals":
            self._propose(event)
        elif event.kind == "report":
            self.best_id = event.body["best"]["id"]
        elif event.kind == "evaluation":
            split, policies = event.body["split"], event.body["policies"]
            for number, (identity, row) in enumerate(
                zip(policies, event.body["episodes"], strict=True)
            ):
                seen = self._seen(identity)
                seen.episodes.setdefault(split, {}).update({e.task: e for e in row})
                if event.attachment:
                    tasks = tuple(e.task for e in row)
                    self._kept[identity, split] = (event.seq, number, tasks)

    def _seen(self, identity: str) -> Seen:
        """A policy that was run: a proposal, or in a full test one of the library."""
        if identity not in self.policies:
            specs = (library.spec(name) for name in library.names())
            spec = next((spec for spec in specs if spec.id == identity), None)
            if spec is None:
                raise RunCorrupt(f"{self.path} ran a policy that it never proposed: {identity}")
            self.policies[identity] = Seen(Candidate(spec, "seed"), BASELINES)
        return self.policies[identity]

    def _propose(self, event: Event) -> None:
        arm = event.key.partition("/")[0]
        for row in event.body:
            candidate = _untrusted(row["candidate"])
            seen = self.policies.setdefault(candidate.id, Seen(candidate, arm))
            screening = Screening(row["fate"], row["ratio"], row["safety"], row["support"])
            if seen.screening is None or (seen.fate and not screening.fate):
                seen.candidate, seen.screening = candidate, screening
            if not screening.fate and arm not in seen.arms:
                seen.arms.append(arm)

    def _unpack(self, seq: int) -> None:
        """All conversations that one event keeps."""
        with Store.read(self.path) as store:
            rows = unpack(next(store.events(start=seq)).attachment)
        for key, (place, number, tasks) in self._kept.items():
            if place == seq:
                self._trajectories[key] = dict(zip(tasks, rows[number], strict=True))


def _untrusted(candidate: Candidate) -> Candidate:
    """A run may be someone else's: its policies are asked in the sandbox."""
    return replace(candidate, spec=replace(candidate.spec, trusted=False))
