"""Whole searches in the synthetic world: found, repeatable, resumable, sealed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import SyntheticEvaluator, planted

from akv_rsi.errors import ConfigError, SealBroken, StoreError
from akv_rsi.insight.run import Run
from akv_rsi.pages.report import page
from akv_rsi.policies.lint import lint
from akv_rsi.search import arm
from akv_rsi.search.archive import Archive, Entry
from akv_rsi.search.candidate import score
from akv_rsi.search.codec import dumps
from akv_rsi.search.config import QUICK, SearchConfig
from akv_rsi.search.loop import run
from akv_rsi.search.report import load_report
from akv_rsi.search.slack import RELAX
from akv_rsi.search.store import Store
from akv_rsi.tasks.suites import task_refs

TINY = {**QUICK, "train": 6, "validation": 6, "test": 6, "episodes": 36, "rungs": (3, 6)}
TINY |= {"width": 3, "recordings": 2, "overdraw": 2, "warmup": 1}


def search(path, evaluator=None, **change):
    config = SearchConfig(**{**TINY, **change})
    with Store.create(path, {}) as store:
        return run(config, evaluator or SyntheticEvaluator(), store)


def archive(path):
    """Everything a run holds, apart from times."""
    with Store.read(path) as store:
        return [(e.seq, e.kind, e.key, dumps(e.body), e.attachment) for e in store.events()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "undisturbed"
    evaluator = SyntheticEvaluator()
    return path, search(path, evaluator), evaluator


def test_the_report_has_the_promised_shape(finished):
    path, report, _ = finished
    plain = json.loads(json.dumps(report.as_json()))
    promised = "run_dir budget seed proposer wall_s evaluations candidates best baselines oracle"
    assert set(promised.split()) <= set(plain)
    assert {"id", "policy_path", "tunables", "train", "validation", "test"} <= set(plain["best"])
    row = {"accuracy", "accuracy_ci", "cost_ratio", "cost_ratio_ci", "kv_read_share", "n"}
    for split in ("validation", "test"):
        assert row <= set(plain["best"][split])
    relaxed = plain["best"]["operator"] == "relax"
    assert plain["best"]["train"] is None if relaxed else row <= set(plain["best"]["train"])
    assert row <= set(plain["oracle"]["test"])
    assert all({"name", "test"} <= set(baseline) for baseline in plain["baselines"])
    assert len(plain["baselines"]) == 2
    assert plain["keep_everything"]["test"]["cost_ratio"] == 1.0
    assert plain["aa_check"] == "undecided"
    lint(Path(plain["best"]["policy_path"]).read_text())
    with Store.read(path) as store:
        assert load_report(store) == report


def test_the_arms_spend_the_same_and_no_more(finished):
    """PITFALLS 36: simple baselines match evolution; so they always run, at an equal budget."""
    _, report, evaluator = finished
    assert set(SearchConfig().arms) == set(report.episodes) == {"search", "best-of-n", "baselines"}
    assert max(report.episodes.values()) <= TINY["episodes"]
    assert report.episodes["search"] >= 0.8 * TINY["episodes"]
    assert report.episodes["best-of-n"] >= 0.8 * TINY["episodes"]
    assert report.evaluations == sum(len(s) * len(t) for s, t in evaluator.seen)


def test_the_leader_in_other_numbers_is_validated_beside_it(tmp_path, monkeypatch):
    def moved(screen, candidate, target):
        values = {name: value + 1 for name, value in candidate.values.items()}
        found = screen.check(candidate.with_values(values))
        made = replace(found.candidate, operator=RELAX, parents=(candidate.id,))
        return replace(found, candidate=made)

    monkeypatch.setattr(arm, "relaxed", moved)
    report = search(tmp_path / "r")
    with Store.read(tmp_path / "r") as store:
        seen = list(store.events())
        assert load_report(store) == report
    last = [e for e in seen if e.kind == "proposals" and e.key.startswith("search/")][-1]
    (made,) = (row["candidate"] for row in last.body)
    (validation,) = (e for e in seen if e.kind == "evaluation" and e.body["split"] == "validation")
    assert {made.id, *made.parents} <= set(validation.body["policies"])
    assert (tmp_path / "r" / "policies" / f"{made.id}.py").exists()
    assert report.episodes["search"] <= TINY["episodes"]
    untrained = replace(report, best=replace(report.best, train=None))
    monkeypatch.setattr(Run, "report", untrained)
    assert report.best.id in page(Run(tmp_path / "r")), "without a row for the train tasks"


def test_a_full_test_is_shown_whole(tmp_path):
    """It reads policies of the library that no arm proposed."""
    report = search(tmp_path / "r", full=True, test=12)
    seen = Run(tmp_path / "r")
    tested = {one.id for one in seen.policies.values() if one.episodes.get("test")}
    assert {report.best.id, *(row.id for row in report.baselines)} <= tested
    with Store.read(tmp_path / "r") as store:
        proposed = {row["candidate"].id for e in store.events("proposals") for row in e.body}
    assert {row.id for row in report.baselines} - proposed


def test_the_sealed_test_is_read_once_and_last(finished):
    path, report, evaluator = finished
    splits = [tasks[0].split for _, tasks in evaluator.seen]
    assert splits[splits.index("test") :] == ["test"] * splits.count("test")
    tested = [
        identity for ids, tasks in evaluator.seen if tasks[0].split == "test" for identity in ids
    ]
    assert len(tested) == len(set(tested))
    assert report.best.id in tested
    body = {"split": "test", "policies": [report.best.id]}
    with Store.open(path) as store, pytest.raises(SealBroken):
        store.append("evaluation", "again", body)


def test_the_splits_never_meet(finished):
    _, _, evaluator = finished
    seeds = {}
    for _, tasks in evaluator.seen:
        for task in tasks:
            seeds.setdefault(task.split, set()).add((task.suite, task.seed))
    assert len(seeds) == 3
    assert len(set().union(*seeds.values())) == sum(map(len, seeds.values()))


def test_the_same_seed_gives_the_same_archive(finished, tmp_path):
    path, report, _ = finished
    again = search(tmp_path / "again")
    assert archive(tmp_path / "again") == archive(path)
    assert again.best == report.best.__class__(
        **{**vars_of(report.best), "policy_path": again.best.policy_path}
    )
    search(tmp_path / "other", seed=1)
    assert archive(tmp_path / "other") != archive(path)


def vars_of(value):
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


class Killed(Exception):
    pass


class Mortal(SyntheticEvaluator):
    """Dies in its ``life``-th cohort, as a kill -9 does: without an event."""

    def run(self, specs, tasks, keep=False):
        self.life -= 1
        if self.life == 0:
            raise Killed
        return super().run(specs, tasks, keep)


def test_resumed_at_any_cohort_the_archive_is_the_same(finished, tmp_path):
    """PITFALLS 29: resume exits early, restarts at 0, wrong counts."""
    path, report, evaluator = finished
    config = SearchConfig(**TINY)
    for life in (1, 2, len(evaluator.seen) // 2, len(evaluator.seen)):
        mortal = Mortal()
        mortal.life = life
        place = tmp_path / str(life)
        with Store.create(place, {}) as store, pytest.raises(Killed):
            run(config, mortal, store)
        with Store.open(place) as store:
            resumed = SyntheticEvaluator()
            outcome = run(config, resumed, store)
        assert [e[:4] for e in archive(place)] == [e[:4] for e in archive(path)]
        assert len(mortal.seen) + len(resumed.seen) == len(evaluator.seen), "nothing is run twice"
        assert outcome.best.id == report.best.id
        assert outcome.evaluations == report.evaluations


def test_a_finished_run_resumes_to_itself(finished):
    path, report, _ = finished
    evaluator, before = SyntheticEvaluator(), archive(path)
    with Store.open(path) as store:
        assert run(SearchConfig(**TINY), evaluator, store) == report
    assert evaluator.seen == []
    assert archive(path) == before


CHILD = """
import json, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from synthetic import SyntheticEvaluator
from akv_rsi.search.config import SearchConfig
from akv_rsi.search.loop import run
from akv_rsi.search.store import Store
config = json.loads(sys.argv[3])
config = SearchConfig(**{**config, "rungs": tuple(config["rungs"])})
path = Path(sys.argv[1])
store = Store.open(path) if (path / "config.json").exists() else Store.create(path, {})
with store:
    run(config, SyntheticEvaluator(), store)
"""


def start(path):
    here = str(Path(__file__).parent)
    command = [sys.executable, "-c", CHILD, str(path), here, json.dumps(TINY)]
    return subprocess.Popen(command, stderr=subprocess.PIPE)


def kill_at(path, seconds):
    """Starts or resumes a search and kills it after so many ``seconds``; whether it was alive."""
    child = start(path)
    try:
        child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
        return True
    assert child.returncode == 0
    return False


def finish(path):
    child = start(path)
    errors = child.communicate()[1].decode()
    assert child.returncode == 0, errors


def test_killed_with_signal_9_and_resumed(finished, tmp_path):
    rng = random.Random(3)
    kills = [kill_at(tmp_path / "r", rng.uniform(1.5, 4)) for _ in range(2)]
    finish(tmp_path / "r")
    assert any(kills)
    assert archive(tmp_path / "r") == archive(finished[0])


@pytest.mark.slow
def test_killed_at_twenty_random_moments(finished, tmp_path):
    rng, kills, attempt = random.Random(4), 0, 0
    while kills < 20:
        place = tmp_path / str(attempt)
        while kill_at(place, rng.uniform(0, 8)):
            kills += 1
        assert archive(place) == archive(finished[0])
        attempt += 1


def test_policies_at_fault_never_get_fitness(finished, tmp_path):
    """PITFALLS 28: a timed-out program with positive fitness; failures in the archive."""
    _, report, evaluator = finished
    ran = {
        identity for ids, tasks in evaluator.seen if tasks[0].split == "train" for identity in ids
    }
    full = report.keep_everything.id
    slow = dict.fromkeys(sorted(ran - {full})[::2], "policy_error")
    slow[report.best.id] = "policy_error"
    failing = SyntheticEvaluator(fails=slow)
    outcome = search(tmp_path / "r", failing)
    assert outcome.best.id not in slow
    assert outcome.best_of_n is None or outcome.best_of_n.id not in slow
    assert not {baseline.id for baseline in outcome.baselines} & set(slow)
    later = [i for ids, tasks in failing.seen if tasks[0].split == "validation" for i in ids]
    assert not set(later) & set(slow)


def test_an_infrastructure_failure_is_nobodys_fitness(finished, tmp_path):
    _, report, _ = finished
    failing = SyntheticEvaluator(fails={report.best.id: "infrastructure"})
    assert search(tmp_path / "r", failing).best.id != report.best.id


def test_a_full_disk_stops_the_run_and_loses_nothing(finished, tmp_path):
    path, _, _ = finished
    place = tmp_path / "r"
    with Store.create(place, {}) as store:
        append, left = store.append, [6]

        def full_disk(*args, **kwargs):
            left[0] -= 1
            if left[0] < 0:
                store._database.execute("PRAGMA max_page_count = 1")
            return append(*args, **kwargs)

        store.append = full_disk
        with pytest.raises(StoreError, match="full") as caught:
            run(SearchConfig(**TINY), SyntheticEvaluator(), store)
        assert "\n" not in str(caught.value)
    with Store.open(place) as store:
        assert len(store) >= 6
        run(SearchConfig(**TINY), SyntheticEvaluator(), store)
    assert archive(place) == archive(path)


def test_a_budget_below_any_policy_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="dropping everything at once still costs"):
        search(tmp_path / "r", budget=0.05)


def test_full_tests_every_baseline(tmp_path):
    report = search(tmp_path / "r", full=True)
    names = {baseline.name for baseline in report.baselines}
    assert {"rolling_drop", "rolling_drop_refresh", "trim", "summarise", "sinks_window"} <= names
    assert len(report.baselines) == len(names)


def test_the_planted_policy_is_as_good_as_the_world_allows():
    evaluator = SyntheticEvaluator()
    tasks = task_refs(("repo", "web"), "train", 24)
    from synthetic import full

    rows = evaluator.run([full(), planted()], tasks)
    result = score(rows[1], rows[0], evaluator.prices)
    assert result.accuracy.estimate == 1.0
    assert result.cost_ratio.estimate < 0.8
    assert score(rows[0], rows[0], evaluator.prices).accuracy.estimate < 0.6
    assert Archive(0.8, 1).add(Entry(planted_candidate(), result, ("drop",)))


def planted_candidate():
    from akv_rsi.search.candidate import Candidate

    return Candidate(planted(), "seed")


@pytest.mark.slow
def test_a_search_finds_a_policy_as_good_as_the_planted_one(tmp_path):
    """Half the tasks fail when everything is kept, and a constant age finds few of them."""
    found = []
    for seed in range(3):
        change = {"train": 24, "validation": 24, "test": 24, "episodes": 500, "width": 8}
        change |= {"rungs": (6, 12, 24), "eta": 3, "finalists": 3, "recordings": 12, "seed": seed}
        report = search(tmp_path / str(seed), **change)
        assert report.best.test.cost_ratio.estimate <= 0.8
        found.append(report.best.test.accuracy.estimate)
    assert max(found) >= 0.95
    assert sum(found) / 3 >= report.keep_everything.test.accuracy.estimate + 0.15


def test_time_is_kept_apart(finished):
    path, report, _ = finished
    assert report.wall_s > 0
    with Store.read(path) as store:
        assert all(event.seconds >= 0 and event.at <= time.time() for event in store.events())
