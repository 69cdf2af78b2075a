"""Which part of the search earns its keep: the same search, parts left out, at equal episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from akv_rsi.policies.spec import PolicySpec
from akv_rsi.search.candidate import score
from akv_rsi.search.config import SAMPLES, SEARCH, SearchConfig
from akv_rsi.search.evaluation import Evaluates, Rows
from akv_rsi.search.journal import Journal
from akv_rsi.search.progress import Advance
from akv_rsi.search.report import record
from akv_rsi.search.stages import Search
from akv_rsi.search.store import Store
from akv_rsi.search.watch import Watcher
from akv_rsi.tasks import stats
from akv_rsi.tasks.suites import task_refs
from akv_rsi.tasks.summary import summarise

YARDSTICK = "grammar"
CONTENDERS: Mapping[str, dict[str, Any]] = {
    "best of N": {"arms": (SAMPLES,)},
    YARDSTICK: {"arms": (SEARCH,)},
    "grammar + evidence": {"arms": (SEARCH,), "evidence": True},
    "grammar, numbers tuned on recordings only": {"arms": (SEARCH,), "tuning": ("screen",)},
    "grammar, numbers tuned on runs only": {"arms": (SEARCH,), "tuning": ("retune",)},
    "grammar, numbers not tuned": {"arms": (SEARCH,), "tuning": ()},
}

MakeEvaluator = Callable[[SearchConfig], Evaluates]


@dataclass(frozen=True, slots=True)
class Contest:
    """One search of a comparison.

    ``curve`` holds ``(episodes spent, what the leader was then worth)``: its validation accuracy
    less a penalty for what exceeds the budget. ``area`` is the mean height of that curve over the
    episodes there were. The test row is the sealed one; ``elsewhere`` is on suites that the search
    never saw, where it was asked for.
    """

    contender: str
    seed: int
    curve: tuple[tuple[float, float], ...]
    area: float
    test: dict[str, Any]
    elsewhere: dict[str, Any] | None
    evaluations: int


def contend(
    contender: str,
    config: SearchConfig,
    evaluator: Evaluates,
    path: Path,
    watcher: Watcher,
    unseen: tuple[str, ...] = (),
) -> Contest:
    """Runs one contender's search in the run directory ``path``, which is made."""
    config = replace(config, **CONTENDERS[contender])
    with Store.create(path, asdict(config)) as store:
        search = Search(config, evaluator, Journal(store), watcher)
        search.refer()
        while heats := search.ask():
            search.race(heats)
            search.criticise()
        curve = _curve(search)
        choice = search.choose(search.validate())
        report = record(search, choice, search.test(choice))
    spent = config.episodes - config.finalists * config.validation
    best = choice.best.candidate.spec
    return Contest(
        contender,
        config.seed,
        curve,
        area(curve, spent),
        report.best.test.to_json(),
        _elsewhere(evaluator, best, search.keep, config, unseen) if unseen else None,
        report.evaluations,
    )


def _curve(search: Search) -> tuple[tuple[float, float], ...]:
    """What each leader was worth, looked at on validation tasks when the search is over."""
    advances = search.progress.advances
    (arm,) = search.arms.values()
    specs = [arm.race.runners[a.id].candidate.spec for a in advances]
    rows = search.look(specs)
    return tuple((a.episodes, _worth(search, a, rows)) for a in advances)


def _worth(search: Search, advance: Advance, rows: Rows) -> float:
    result = score(rows[advance.id], rows[search.keep.id], search.evaluator.prices)
    return result.promise(search.config.budget)[0]


def area(curve: Sequence[tuple[float, float]], spent: float) -> float:
    """The mean height of a step curve over ``[0, spent]``; before its first step it is 0.

    >>> area([(10, 0.5), (30, 1.0)], 40)
    0.5
    """
    ends = [*(at for at, _ in curve[1:]), spent]
    steps = zip(curve, ends, strict=False)
    return sum(value * max(0.0, end - at) for (at, value), end in steps) / spent


def _elsewhere(
    evaluator: Evaluates,
    best: PolicySpec,
    keep: PolicySpec,
    config: SearchConfig,
    unseen: tuple[str, ...],
) -> dict[str, Any]:
    ours, full = evaluator.run([best, keep], task_refs(unseen, "test", config.test))
    return summarise(ours, full, evaluator.prices).to_json()


def summary(contests: Sequence[Contest]) -> dict[str, dict[str, Any]]:
    """Means over seeds, and paired differences to the yardstick where it ran the same seeds."""
    yard = {one.seed: one for one in contests if one.contender == YARDSTICK}
    about: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(one.contender for one in contests):
        own = [one for one in contests if one.contender == name]
        about[name] = {
            "seeds": len(own),
            "area": mean(one.area for one in own),
            "test_accuracy": mean(one.test["accuracy"] for one in own),
            "test_cost_ratio": mean(one.test["cost_ratio"] for one in own),
        }
        pairs = [(one, yard[one.seed]) for one in own if one.seed in yard]
        if pairs and name != YARDSTICK:
            about[name]["area_against_grammar"] = _difference([(a.area, b.area) for a, b in pairs])
            about[name]["test_accuracy_against_grammar"] = _difference(
                [(a.test["accuracy"], b.test["accuracy"]) for a, b in pairs]
            )
    return about


def _difference(pairs: Sequence[tuple[float, float]]) -> list[float]:
    ours, theirs = zip(*pairs, strict=True)
    return list(stats.difference(ours, theirs))
