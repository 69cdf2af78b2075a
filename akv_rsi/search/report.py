"""What a search found, as data: the content of `search --json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from akv_rsi.policies.spec import PolicySpec
from akv_rsi.search.accept import PairedGate
from akv_rsi.search.choice import ORACLE, Choice
from akv_rsi.search.evaluation import Rows, Sealed
from akv_rsi.search.journal import Outcome
from akv_rsi.search.progress import Advance
from akv_rsi.search.store import Store
from akv_rsi.tasks import stats
from akv_rsi.tasks.episode import Episode
from akv_rsi.tasks.summary import Row, summarise

if TYPE_CHECKING:
    from akv_rsi.search.stages import Search


@dataclass(frozen=True, slots=True)
class Named:
    """A policy on the sealed test."""

    id: str
    name: str
    tunables: dict[str, int | float]
    test: Row


@dataclass(frozen=True, slots=True)
class Best:
    """The search's policy: where it is, its numbers, and its rows on all three splits.

    ``train`` is None for one that ran on no train task: the leader in milder numbers.
    """

    id: str
    operator: str
    policy_path: str
    tunables: dict[str, int | float]
    within_budget: bool
    train: Row | None
    validation: Row
    test: Row


@dataclass(frozen=True, slots=True)
class Paired:
    """The best policy less another one on the sealed test, as ``(estimate, low, high)``.

    ``accuracy`` on all tasks, ``in_span`` on those inside the model's reliable span, ``cost`` as a
    share of the other's.
    """

    against: str
    accuracy: tuple[float, float, float]
    in_span: tuple[float, float, float] | None
    cost: tuple[float, float, float]
    verdict: stats.Verdict


@dataclass(frozen=True, slots=True)
class SearchReport:
    """A finished search.

    ``evaluations`` are task episodes in all and ``episodes`` those of each arm; of ``proposals``
    so many ``candidates`` were run. ``cached_share`` is the share of prompt tokens that did not
    have to be computed, ``rate`` episodes per second of evaluation, ``wall_s`` seconds in all.
    ``measure`` says what accuracies are, and ``found_on`` on which transcripts, if it was on those.
    ``progress`` tells generation by generation what improved; ``usd`` and ``llm_tokens`` went to
    models that proposed.
    """

    run_dir: str
    budget: float
    seed: int
    proposer: str
    wall_s: float
    evaluations: int
    candidates: int
    proposals: int
    episodes: dict[str, int]
    cached_share: float
    rate: float
    aa_check: stats.Verdict
    best: Best
    keep_everything: Named
    oracle: Named | None
    best_of_n: Named | None
    baselines: tuple[Named, ...]
    comparisons: tuple[Paired, ...]
    measure: str = "accuracy"
    found_on: str = ""
    progress: tuple[Advance, ...] = ()
    usd: float = 0.0
    llm_tokens: int = 0

    def as_json(self) -> dict[str, Any]:
        """The report as plain JSON: what ``search --json`` prints."""
        plain: dict[str, Any] = _plain(self)
        return plain


_ADAPTER = TypeAdapter(SearchReport)
# What differs between two runs of one seed: not part of the event's body.
_PLACE_AND_TIME: dict[str, bool | set[str]] = {
    "run_dir": True,
    "wall_s": True,
    "rate": True,
    "best": {"policy_path"},
}


def _plain(value: Any) -> Any:
    """Dataclasses as objects, and rows in the form that ``eval --json`` has too."""
    if isinstance(value, Row):
        return value.to_json()
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def record(search: Search, choice: Choice, sealed: Sealed) -> SearchReport:
    """The report of a search, made durable as its last event."""
    store = search.journal.store
    best = store.policy_path(choice.best.candidate.id).read_text()
    store.write_policy("best", best)
    report = _report(search, choice, sealed)
    body = _ADAPTER.dump_python(report, mode="json", exclude=_PLACE_AND_TIME)
    search.journal.perform("report", "", lambda: Outcome(body, seconds=search.journal.seconds))
    return load_report(store) or report


def load_report(store: Store) -> SearchReport | None:
    """The report of a finished run; None while it is unfinished."""
    event = next(store.events("report"), None)
    if event is None:
        return None
    place = {"run_dir": str(store.path), "wall_s": event.seconds}
    best = {**event.body["best"], "policy_path": str(store.policy_path("best"))}
    rate = _rate(store, event.body["evaluations"])
    return _ADAPTER.validate_python({**event.body, **place, "rate": rate, "best": best})


def _rate(store: Store, episodes: int) -> float:
    return episodes / max(sum(event.seconds for event in store.events("evaluation")), 1e-9)


def _report(search: Search, choice: Choice, sealed: Sealed) -> SearchReport:
    rows = sealed.rows
    config, store, arms = search.config, search.journal.store, search.arms.values()
    counts = _counts(store)
    named = {spec.id: _named(search, spec, sealed) for spec in choice.specs}
    rivals = [n for i, n in named.items() if n is not None and i != choice.best.candidate.id]
    keep, sample = named[search.keep.id], choice.sample
    assert keep is not None, "refer() made sure that keeping everything can be evaluated"
    assert search.aa_check is not None
    return SearchReport(
        run_dir=str(store.path),
        budget=config.budget,
        seed=config.seed,
        proposer=config.proposer,
        wall_s=search.journal.seconds,
        evaluations=counts["episodes"],
        candidates=len({i for arm in arms for i in arm.race.runners}),
        proposals=sum(len(arm.screened) for arm in arms),
        episodes={arm.name: int(arm.ledger.spent.episodes) for arm in arms},
        cached_share=_cached_share(counts),
        rate=_rate(store, counts["episodes"]),
        aa_check=search.aa_check.verdict,
        best=_best(search, choice, sealed),
        keep_everything=keep,
        oracle=named[ORACLE.id],
        best_of_n=None if sample is None else named[sample.candidate.id],
        baselines=tuple(n for spec in choice.baselines if (n := named[spec.id]) is not None),
        progress=tuple(search.progress.advances),
        usd=search.team.spent.usd,
        llm_tokens=int(search.team.spent.llm_tokens),
        comparisons=tuple(_compare(rows[choice.best.candidate.id], n, rows) for n in rivals),
        measure=config.measure,
        found_on=config.found_on,
    )


def _counts(store: Store) -> dict[str, int]:
    """What all evaluations together took, by the engine's counters."""
    total: dict[str, int] = {}
    for event in store.events("evaluation"):
        for name, value in event.body["totals"].items():
            total[name] = total.get(name, 0) + value
    return total


def _cached_share(counts: dict[str, int]) -> float:
    served = counts["shared"] + counts["cached"]
    return served / max(served + counts["computed"], 1)


def _named(search: Search, spec: PolicySpec, sealed: Sealed) -> Named | None:
    """The test row of a policy; None when it has none (an oracle without hindsight)."""
    episodes = sealed.rows[spec.id]
    if any(episode.outcome == "infrastructure" for episode in episodes):
        return None
    return Named(spec.id, spec.name, dict(spec.tunables), _row(search, spec, sealed))


def _row(search: Search, spec: PolicySpec, sealed: Sealed) -> Row:
    keep = search.keep.id
    fixed = (sealed.fixed[spec.id], sealed.fixed[keep]) if sealed.fixed[keep] else None
    return summarise(sealed.rows[spec.id], sealed.rows[keep], search.evaluator.prices, fixed=fixed)


def _best(search: Search, choice: Choice, sealed: Sealed) -> Best:
    best, prices = choice.best, search.evaluator.prices
    spec, train = best.candidate.spec, best.runner.episodes
    test = _row(search, spec, sealed)
    return Best(
        id=spec.id,
        operator=best.candidate.operator,
        policy_path=str(search.journal.store.policy_path("best")),
        tunables=dict(spec.tunables),
        within_budget=test.cost_ratio.estimate <= search.config.budget,
        train=summarise(train, search.full["train"][: len(train)], prices) if train else None,
        validation=summarise(best.episodes, search.full["validation"], prices),
        test=test,
    )


def _compare(ours: Sequence[Episode], rival: Named, rows: Rows) -> Paired:
    theirs = rows[rival.id]
    judgement = PairedGate().judge(ours, theirs)
    inside = [i for i, episode in enumerate(ours) if episode.in_span]
    won = [[row[i].success for i in inside] for row in (ours, theirs)]
    return Paired(
        against=rival.name,
        accuracy=judgement.accuracy,
        in_span=stats.difference(won[0], won[1]) if inside else None,
        cost=judgement.cost,
        verdict=judgement.verdict,
    )
