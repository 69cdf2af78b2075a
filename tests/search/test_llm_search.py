"""Whole searches with a model that proposes: a loopback server, and a world without an engine."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
from fake_llm import BAD, DIFF, GOOD, FakeLLM, Rule, probing, proposal, usual
from rich.console import Console
from synthetic import SyntheticEvaluator

from akv_rsi.cli import run as run_command
from akv_rsi.cli.search import show
from akv_rsi.errors import ConfigError
from akv_rsi.search.config import QUICK, SearchConfig
from akv_rsi.search.llm import endpoint
from akv_rsi.search.loop import run
from akv_rsi.search.store import Store

SECRET = "sk-very-secret-0123456789"
TINY = {**QUICK, "train": 6, "validation": 6, "test": 6, "episodes": 24, "rungs": (3, 6)}
TINY |= {"width": 3, "finalists": 1, "recordings": 2, "overdraw": 2, "warmup": 1, "llm": ("m",)}
TINY |= {"llm_key_env": "TEST_KEY", "llm_price": (2.0, 10.0)}


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("TEST_KEY", SECRET)


class Notes:
    """A watcher that remembers what was said."""

    def __init__(self):
        self.lines = []

    def begin(self, phase, episodes):
        pass

    def advance(self, episodes):
        pass

    def say(self, line):
        self.lines.append(line)


def search(path, server, notes=None, **change):
    config = SearchConfig(**{**TINY, "llm_base_url": server.url, **change})
    with Store.create(path, asdict(config)) as store:
        return run(config, SyntheticEvaluator(), store, notes or Notes())


def resume(path):
    with Store.open(path) as store:
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in store.config.items()}
        return run(SearchConfig(**values), SyntheticEvaluator(), store)


def events(path, *kinds):
    with Store.read(path) as store:
        return [event for event in store.events() if not kinds or event.kind in kinds]


def drafts(path):
    rows = [row for event in events(path, "proposals") for row in event.body]
    return [row for row in rows if "@" in row["candidate"].operator]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished search whose first proposals have to be repaired: a faulty one, and a diff."""
    os.environ["TEST_KEY"] = SECRET
    path = tmp_path_factory.mktemp("llm") / "r"
    good = [proposal(GOOD.format(keep=keep)) for keep in (6, 9, 4, 12, 3, 14, 5, 7)]
    notes = Notes()
    faulty = [proposal(BAD), f"```diff\n{DIFF}```"]
    with FakeLLM(usual(new=[*faulty, *good])) as server:
        report = search(path, server, notes)
    del os.environ["TEST_KEY"]
    return path, report, server, notes


def test_what_models_propose_is_screened_and_run(done):
    path, report, server, _ = done
    assert server.unknown == []
    found = drafts(path)
    assert {row["candidate"].operator for row in found} <= {"new@m", "improve@m", "combine@m"}
    assert any(not row["fate"] for row in found)
    assert all(not row["candidate"].spec.trusted for row in found), "PITFALLS 33: sandbox only"
    answered = [row for event in events(path, "llm-answered") for row in event.body]
    assert report.usd == pytest.approx(sum(row["usd"] for row in answered))
    assert report.llm_tokens == sum(row["tokens_in"] + row["tokens_out"] for row in answered)


def test_the_summary_tells_what_models_cost(done):
    _, report, _, _ = done
    console = Console(file=StringIO(), width=200)
    show(report, console)
    told = f"models read and wrote {report.llm_tokens:,} tokens, ${report.usd:.4f}"
    assert told in console.file.getvalue()


def test_a_model_that_does_not_answer_is_told_before_an_episode_is_run(tmp_path):
    path, down = tmp_path / "r", [Rule((), [404])]
    with FakeLLM(down) as server, pytest.raises(ConfigError, match="refused HTTP 404"):
        search(path, server)
    assert {event.kind for event in events(path)} == {"llm-asked", "llm-answered"}


def test_what_is_refused_goes_back_with_its_lines(done):
    path, _, server, _ = done
    repairs = repaired(server)
    assert len(repairs) == 2
    assert "line 2: " in next(told for told in repairs if "import os" in told)
    waves = [event.key for event in events(path, "llm-answered")]
    assert "search/0/1/0" in waves


def test_a_diff_is_never_applied(done):
    """PITFALLS 30: diffs that do not apply, worse with local models.

    Models are shown whole programs and write whole ones: a diff is refused and goes back.
    """
    path, _, server, _ = done
    (told,) = (told for told in repaired(server) if DIFF in told)
    assert "What is wrong with it:" in told
    assert not any("@@" in row["candidate"].spec.source for row in drafts(path))


def repaired(server):
    """The requests to repair a program."""
    asked = [message["messages"][1]["content"] for message in server.seen]
    return [text for text in asked if "This policy was refused" in text]


def test_models_are_compared_with_what_is_simple(done):
    """PITFALLS 36: best of N and hand-written policies match evolution; so they always run."""
    _, report, _, _ = done
    spent = report.episodes
    assert spent["search"] <= TINY["episodes"]
    assert min(spent["best-of-n"], spent["baselines"]) >= 0.8 * spent["search"]
    rivals = {pair.against: pair.verdict for pair in report.comparisons}
    assert rivals.keys() >= {row.name for row in (report.best_of_n, *report.baselines)}


def test_a_model_that_never_learns_costs_its_proposals(tmp_path, monkeypatch):
    """A server that is always busy for one kind of question, and a model that repairs nothing."""
    hopeless = {name: [proposal(BAD)] for name in ("new", "combine", "repair")}
    monkeypatch.setattr(endpoint.Endpoint, "ask", patient(endpoint.Endpoint.ask))
    with FakeLLM(usual(**hopeless, improve=[429])) as server:
        report = search(tmp_path / "r", server)
    assert report.best.id
    found = drafts(tmp_path / "r")
    assert found
    assert all(row["fate"].startswith("LintError") for row in found)
    asked = [e.key.split("/") for e in events(tmp_path / "r", "llm-asked") if "search" in e.key]
    assert max(int(wave) for _, _, wave, _ in asked) == 3, "three repairs, no more"


def test_the_run_tells_what_improved_and_what_caused_it(done):
    _, report, _, notes = done
    leaders = [advance for advance in report.progress if advance.arm == "search"]
    assert leaders
    assert all(a.episodes <= b.episodes for a, b in pairwise(leaders))
    told = [line for line in notes.lines if line.startswith("search, generation")]
    assert len(told) == len(leaders)
    assert leaders[-1].operator in told[-1]


def test_the_key_is_nowhere(done, capsys, tmp_path):
    """PITFALLS 33: candidate code sees the API keys. Not the store, not exports either."""
    path, report, server, notes = done
    assert server.keys == {f"Bearer {SECRET}"}
    target = tmp_path / "policy.py"
    code = run_command(
        ["export", str(path), "--candidate", report.best.id, "--output", str(target)]
    )
    assert code == 0
    for file in [*path.rglob("*"), target]:
        assert file.is_dir() or SECRET.encode() not in file.read_bytes()
    assert SECRET not in "".join([*notes.lines, *capsys.readouterr()])
    assert all(SECRET not in json.dumps(message["messages"]) for message in server.seen)


class Killed(BaseException):
    pass


def test_killed_during_a_call_nothing_is_counted_twice(tmp_path, monkeypatch):
    """PITFALLS 29: wrong counts after a resume."""
    path = tmp_path / "r"
    with FakeLLM(usual()) as server:
        calls, once = [], endpoint.Endpoint._once

        def mortal(self, *args):
            calls.append(1)
            if len(calls) == 4:
                raise Killed
            return once(self, *args)

        monkeypatch.setattr(endpoint.Endpoint, "_once", mortal)
        with pytest.raises(Killed):
            search(path, server)
        assert events(path)[-1].kind == "llm-asked"
        monkeypatch.setattr(endpoint.Endpoint, "_once", once)
        report = resume(path)
        before = len(server.seen)
        again = resume(path)
        assert len(server.seen) == before
    assert again.usd == report.usd
    keys = [(event.kind, event.key) for event in events(path)]
    assert len(keys) == len(set(keys))
    cut = events(path, "llm-asked")[1]
    assert cut.key.endswith("/0")
    answered = [row for event in events(path, "llm-answered") for row in event.body]
    booked = sum(row["usd"] for row in answered) + sum(usd for *_, usd in cut.body)
    assert report.usd == pytest.approx(booked), "what may have been billed is on the account"


CHILD = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
import test_llm_search as t
class Server: url = sys.argv[3]
t.search(Path(sys.argv[1]), Server)
"""


def test_killed_with_signal_9_during_a_call(tmp_path):
    path = tmp_path / "r"
    stuck = [probing(), Rule(("policy",), ["slow"])]
    with FakeLLM(stuck) as server:
        here = str(Path(__file__).parent)
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(path), here, server.url])
        deadline = time.monotonic() + 120
        while len(server.seen) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        assert events(path)[-1].kind == "llm-asked"
        server.rules = usual()
        report = resume(path)
    asked, answered = (events(path, kind) for kind in ("llm-asked", "llm-answered"))
    assert len(asked) == len(answered) + 1
    assert report.usd > sum(row["usd"] for event in answered for row in event.body)


def test_when_the_money_is_spent_the_grammar_goes_on(tmp_path):
    notes = Notes()
    with FakeLLM(usual()) as server:
        report = search(tmp_path / "r", server, notes, max_usd=0.3)
    assert 0 < report.usd <= 0.3
    assert any(line.startswith("warning: --max-usd pays for") for line in notes.lines)
    assert report.best.id
    assert report.episodes["search"] >= 0.8 * TINY["episodes"]
    with pytest.raises(ConfigError, match="needs --llm-price"):
        search(tmp_path / "s", server, max_usd=1.0, llm_price=(0.0, 0.0))


def patient(ask):
    """Without the pauses."""

    def quick(self, *args):
        self.sleep = lambda _: None
        return ask(self, *args)

    return quick


class TestLimits:
    def search(self, path, notes=None, **change):
        config = SearchConfig(**{**TINY, "llm": (), **change})
        with Store.create(path, {}) as store:
            return run(config, SyntheticEvaluator(), store, notes or Notes())

    def test_evaluations_never_exceed_their_limit(self, tmp_path):
        """PITFALLS 32: a budget that bought one proposal and was called a success."""
        free = self.search(tmp_path / "free")
        config = SearchConfig(**{**TINY, "llm": ()})
        least = config.opening + config.closing
        notes = Notes()
        held = self.search(tmp_path / "held", notes, max_evals=least)
        assert held.evaluations <= least < free.evaluations + 60
        assert held.best.test.n == 6
        with pytest.raises(ConfigError, match="evaluations are too few"):
            SearchConfig(**{**TINY, "max_evals": least - 1})

    def test_a_stop_by_the_clock_is_recorded_and_leaves_a_tested_policy(self, tmp_path):
        notes = Notes()
        report = self.search(tmp_path / "r", notes, max_time=1e-3)
        assert report.best.test.n == 6
        assert any("no further round" in line for line in notes.lines)
        (limit,) = events(tmp_path / "r", "limit")
        assert "seconds are spent" in limit.body
        with Store.open(tmp_path / "r") as store:
            config = SearchConfig(**{**TINY, "llm": (), "max_time": 1e-3})
            assert run(config, SyntheticEvaluator(), store) == report


def test_a_dry_run_tells_the_price_and_makes_nothing(capsys, tmp_path):
    asked = ["search", "--dry-run", "--json", "--runs", str(tmp_path / "runs"), "--llm", "m"]
    asked += ["--llm-key-env", "TEST_KEY", "--llm-price", "2", "10", "--quick"]
    assert run_command([*asked, "--max-usd", "0.05"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert about["usd"] <= 0.05
    assert about["affordable"] < 3
    assert about["warnings"]
    assert about["evaluations"] > 100
    assert not (tmp_path / "runs").exists()
    assert run_command([*asked[:-1], "--max-usd", "100"]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"] == []
    assert run_command([*asked[:-1], "--max-time", "1"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert about["seconds"] > 1
    assert "more than --max-time" in about["warnings"][0]
    assert run_command(["search", "--llm", "m", "--llm-key-env", "NO_SUCH", "--dry-run"]) == 2
    assert "NO_SUCH: the variable is not set" in capsys.readouterr().err
