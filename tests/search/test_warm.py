"""From one run to the next, and searches compared with themselves."""

import json
from dataclasses import asdict, replace

import pytest
from synthetic import SyntheticEvaluator, planted

from akv_rsi.cli import run as run_command
from akv_rsi.errors import ConfigError, StoreError
from akv_rsi.search.candidate import Candidate
from akv_rsi.search.compare import CONTENDERS, Contest, contend, summary
from akv_rsi.search.config import QUICK, SearchConfig
from akv_rsi.search.loop import run
from akv_rsi.search.playbook import Playbook
from akv_rsi.search.store import Store
from akv_rsi.search.warm import inheritance
from akv_rsi.search.watch import Silence

TINY = {**QUICK, "train": 6, "validation": 6, "test": 6, "episodes": 24, "rungs": (3, 6)}
TINY |= {"width": 3, "finalists": 1, "recordings": 2, "overdraw": 2, "warmup": 1}
TINY |= {"evidence": True, "arms": ("search",)}


def search(path, **change):
    config = SearchConfig(**{**TINY, **change})
    with Store.create(path, asdict(config)) as store:
        return run(config, SyntheticEvaluator(), store)


def events(path, kind):
    with Store.read(path) as store:
        return list(store.events(kind))


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    path = tmp_path_factory.mktemp("warm") / "before"
    return path, search(path)


def test_a_warm_start_begins_with_the_best_of_the_other_run(before, tmp_path):
    path, report = before
    search(tmp_path / "r", seed=1, warm_start=str(path))
    first = events(tmp_path / "r", "proposals")[0].body
    handed = [row for row in first if row["candidate"].id == report.best.id]
    assert handed
    assert not handed[0]["candidate"].spec.trusted, "someone else's policy: sandbox again"
    (event,) = events(tmp_path / "r", "warm-start")
    assert event.body["policies"][0].id == report.best.id


def test_a_policy_of_another_run_is_linted_again(before, tmp_path):
    """A policy file from a run of someone else gets no further than the lint."""
    path, _ = before
    evil = "import os\n\ndef policy(ctx):\n    os.remove('x')\n"
    place = tmp_path / "r"
    config = SearchConfig(**TINY, warm_start=str(path))
    with Store.create(place, asdict(config)) as store:
        spec = replace(planted(), source=evil, trusted=True)
        body = {"policies": [spec], "playbook": [], "bandit": {}}
        original, store.append = store.append, None

        def append(kind, key, content, *rest, **more):
            return original(kind, key, body if kind == "warm-start" else content, *rest, **more)

        store.append = append
        run(config, SyntheticEvaluator(), store)
    row = next(
        row
        for event in events(place, "proposals")
        for row in event.body
        if row["candidate"].spec.source == evil
    )
    assert row["fate"].startswith("LintError: line 1")


def test_lessons_and_the_bandit_are_handed_on(tmp_path):
    path = tmp_path / "r"
    report = search(path)
    book = Playbook()
    book.add("drop(seg) if seg.is_error", "abc")
    with Store.read(path) as store:
        (memory,) = store.events("memory")
    assert set(memory.body) == {"playbook", "bandit"}
    brought = inheritance(path)
    assert brought["policies"][0].id == report.best.id
    assert len(brought["policies"]) <= 8


def test_an_unfinished_run_hands_on_nothing(tmp_path):
    Store.create(tmp_path / "young", asdict(SearchConfig())).close()
    with pytest.raises(StoreError, match="needs a finished run"):
        inheritance(tmp_path / "young")
    with pytest.raises(StoreError, match="holds no run"):
        search(tmp_path / "r", warm_start=str(tmp_path / "nowhere"))


@pytest.mark.parametrize(("name", "why"), [("nowhere", "holds no run"), ("young", "finished run")])
def test_what_cannot_be_begun_with_is_told_before_anything_is_made(tmp_path, capsys, name, why):
    Store.create(tmp_path / "young", {}).close()
    runs = tmp_path / "runs"
    asked = ["search", "--quick", "--runs", runs, "--warm-start", tmp_path / name]
    assert run_command([str(word) for word in asked]) == 1
    assert why in capsys.readouterr().err
    assert not runs.exists()


@pytest.mark.parametrize("name", ["best of N", "grammar", "grammar, numbers not tuned"])
def test_contenders_spend_the_same_and_are_tested_once(name, tmp_path):
    config = SearchConfig(**{**TINY, "evidence": False})
    contest = contend(name, config, SyntheticEvaluator(), tmp_path / "r", Silence())
    assert contest.contender == name
    assert 0 <= contest.area <= 1
    assert all(at <= config.episodes for at, _ in contest.curve)
    assert contest.test["n"] == 6
    with Store.read(tmp_path / "r") as store:
        ran = {row["candidate"].operator for e in store.events("proposals") for row in e.body}
    assert ("cross" in ran or "mutate" in ran or "seed" in ran) == (name != "best of N")


def test_what_a_search_never_saw_can_be_tested_besides(tmp_path):
    config = SearchConfig(**{**TINY, "evidence": False, "suites": ("repo", "web")})
    evaluator = SyntheticEvaluator()
    contest = contend("grammar", config, evaluator, tmp_path / "r", Silence(), ("tools",))
    assert contest.elsewhere["n"] == 6
    suites = {task.suite for _, tasks in evaluator.seen for task in tasks[:-6]}
    assert "tools" not in suites or evaluator.seen[-1][1][0].suite == "tools"


def test_contenders_differ_as_they_say():
    configs = [replace(SearchConfig(), **change) for change in CONTENDERS.values()]
    assert len({repr(config) for config in configs}) == len(CONTENDERS)
    with pytest.raises(ConfigError, match="unknown arms: psychic"):
        SearchConfig(arms=("psychic",))
    with pytest.raises(ConfigError, match="needs an arm"):
        SearchConfig(arms=())


def test_differences_are_paired_by_seed():
    def contest(name, seed, area, accuracy):
        test = {"accuracy": accuracy, "cost_ratio": 0.7}
        return Contest(name, seed, (), area, test, None, 10)

    rows = [contest("grammar", s, 0.5 + s / 10, 0.6) for s in range(4)]
    rows += [contest("grammar + evidence", s, 0.6 + s / 10, 0.7) for s in range(4)]
    means = summary(rows)
    gap = means["grammar + evidence"]["area_against_grammar"]
    assert gap == pytest.approx([0.1, 0.1, 0.1])
    assert means["grammar"]["area"] == pytest.approx(0.65)
    assert "area_against_grammar" not in means["grammar"]


def test_bench_refuses_what_it_cannot_compare(capsys):
    assert run_command(["bench", "search", "--contender", "luck"]) == 2
    assert "unknown contender 'luck'" in capsys.readouterr().err
    assert run_command(["bench", "search", "--unseen", "web"]) == 2
    assert "others than those searched" in capsys.readouterr().err
    assert run_command(["bench", "search", "--help"]) == 0


def test_lessons_are_followed_and_measured():
    from random import Random

    from akv_rsi.search.archive import Archive
    from akv_rsi.search.grammar import Grammar, Vocabulary
    from akv_rsi.search.propose import Brief, GrammarProposer

    grammar = Grammar(Vocabulary(("poll",), ("tool_result",), frozenset()))
    proposer = GrammarProposer(grammar)
    parent = Candidate(planted(), "seed")
    follower = Candidate(planted(), "heed", lesson="drop(seg) if seg.is_error")
    proposer.tell(follower, 0.3, 0.1)
    brief = Brief(Archive(0.8, 1), [parent], [], 0, Random(0))
    child = proposer._heed(brief)
    assert "seg.is_error" in child.spec.source
    assert child.lesson == follower.lesson
    assert child.spec.trusted
    foreign = GrammarProposer(grammar)
    foreign.playbook.inherit(proposer.playbook.state())
    assert not foreign._heed(brief).spec.trusted
    assert json.dumps(proposer.playbook.state())
