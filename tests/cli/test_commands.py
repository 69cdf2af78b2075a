"""The commands as a user meets them: help, one clear line for bad input, JSON that parses."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "search"))
from synthetic import SyntheticEvaluator

from akv_rsi.cli import build_app, run
from akv_rsi.policies.open import read_policy
from akv_rsi.policies.tunables import freeze
from akv_rsi.search.config import QUICK, SearchConfig
from akv_rsi.search.loop import run as run_search
from akv_rsi.search.store import Store

COMMANDS = (
    "search",
    "eval",
    "critique",
    "export",
    "runs list",
    "runs show",
    "doctor",
    "serve",
    "proxy",
)
SMALL = {**QUICK, "train": 6, "validation": 6, "test": 6, "episodes": 36, "rungs": (3, 6)}
SMALL |= {"width": 3, "recordings": 2, "overdraw": 2, "warmup": 1}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run, of the synthetic world."""
    path = tmp_path_factory.mktemp("runs") / "one"
    config = SearchConfig(**SMALL)
    with Store.create(path, asdict(config)) as store:
        run_search(config, SyntheticEvaluator(), store)
    return path


def call(capsys, *arguments):
    code = run([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("command", COMMANDS)
def test_help_ends_with_an_example(capsys, command):
    code, out, _ = call(capsys, *command.split(), "--help")
    assert code == 0
    assert out.rstrip().splitlines()[-1].startswith(f"Example: akv-rsi {command}")
    assert "--json" in out


def test_help_is_quick_because_nothing_is_imported():
    code = "import sys, akv_rsi.cli as c; c.run(['--help']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_shell_completion(shell):
    assert "search" in build_app().generate_completion(shell=shell)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("search --budget 0", "budget must be above 0"),
        ("search --budget -0.5", "budget must be above 0"),
        ("search --budget 1.5", "ask for at most 1"),
        ("search --budget much", "budget"),
        ("search --suite nowhere", "unknown suite 'nowhere'"),
        ("search --suite no.such:thing", "cannot be loaded"),
        ("search --model nowhere", "unknown model 'nowhere'"),
        ("search --prices cheap", "unknown prices 'cheap'"),
        ("search --proposer psychic", "unknown proposer 'psychic'"),
        ("search --episodes 3", "too few"),
        ("search --workers -1", "workers"),
        ("search --colour red", "--colour"),
        ("frobnicate", "frobnicate"),
    ],
)
def test_bad_input_is_one_line_and_code_2(capsys, tmp_path, arguments, message):
    place = ["--runs", tmp_path / "runs"] if arguments.startswith("search") else []
    code, out, err = call(capsys, *arguments.split(), *place)
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert message in err
    assert not (tmp_path / "runs").exists(), "nothing is left behind"


def test_what_is_no_run_is_said(capsys, tmp_path):
    for arguments in (
        ("runs", "show", tmp_path),
        ("export", tmp_path),
        ("search", "--resume", tmp_path),
    ):
        code, _, err = call(capsys, *arguments)
        assert code == 1
        assert err == f"akv-rsi: {tmp_path} holds no run (no config.json)\n"


def test_a_run_of_another_process_is_left_alone(capsys, finished):
    holder = "import sys, time; from pathlib import Path; from akv_rsi.search.store import Store\n"
    holder += "s = Store.open(Path(sys.argv[1])); print('held', flush=True); time.sleep(60)"
    child = subprocess.Popen(
        [sys.executable, "-c", holder, finished], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout.readline() == "held\n"
        code, _, err = call(capsys, "search", "--resume", finished)
    finally:
        child.kill()
        child.communicate()
    assert code == 1
    assert err.startswith("akv-rsi: another process is working on")


def test_runs_are_listed(capsys, finished, tmp_path):
    code, out, _ = call(capsys, "runs", "list", finished.parent, "--json")
    (listed,) = json.loads(out)
    assert code == 0
    assert listed["state"] == "finished"
    assert listed["budget"] == 0.8
    assert 0 <= listed["accuracy"] <= 1
    assert "one" in call(capsys, "runs", "list", finished.parent)[1]
    assert "no runs in" in call(capsys, "runs", "list", tmp_path)[1]


def test_unfinished_and_damaged_runs_are_listed_too(capsys, tmp_path):
    Store.create(tmp_path / "a", asdict(SearchConfig())).close()
    Store.create(tmp_path / "b", asdict(SearchConfig())).close()
    (tmp_path / "b" / "run.sqlite").write_bytes(b"nonsense" * 200)
    listed = json.loads(call(capsys, "runs", "list", tmp_path, "--json")[1])
    assert [run["state"] for run in listed] == ["stopped", "damaged"]
    code, out, _ = call(capsys, "runs", "show", tmp_path / "a", "--json")
    assert (code, json.loads(out)["episodes"]) == (0, 0)


def test_a_finished_run_is_shown_as_the_search_showed_it(capsys, finished):
    report = json.loads(call(capsys, "runs", "show", finished, "--json")[1])
    assert {"best", "baselines", "oracle", "run_dir", "wall_s", "evaluations"} <= set(report)
    out = call(capsys, "runs", "show", finished)[1]
    for word in ("keep everything", "oracle", "best of N", "policy: ", "episodes/s"):
        assert word.split("/")[0] in out


def test_resuming_a_finished_run_repeats_its_result(capsys, finished):
    before = call(capsys, "runs", "show", finished, "--json")[1]
    # The synthetic world is not the reference agent's: the configuration alone is looked at here.
    with Store.open(finished) as store:
        assert len(list(store.events("report"))) == 1
    assert call(capsys, "runs", "show", finished, "--json")[1] == before


def test_the_best_policy_is_exported(capsys, finished, tmp_path):
    target = tmp_path / "policy.py"
    code, out, _ = call(capsys, "export", finished, "--output", target, "--json")
    about = json.loads(out)
    assert code == 0
    assert about["path"] == str(target)
    module = target.read_text()
    assert f"Policy id: {about['id']}" in module
    assert "SHA-256 of the decisions" in module
    assert "test " in module
    code = (
        "import runpy, sys; m = runpy.run_path(sys.argv[1]); print(callable(m['prepare_request']))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, target],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "True\n"
    report = json.loads(call(capsys, "runs", "show", finished, "--json")[1])
    saved = Path(report["best"]["policy_path"]).read_text()
    assert "tunable(" not in freeze(read_policy(target).source, {})
    assert (
        saved.split("def policy", 1)[1].split()
        == module.split("def policy", 1)[1].split("# --- akv-rsi", 1)[0].split()
    )


def test_export_refuses_what_it_has_not(capsys, finished, tmp_path):
    code, _, err = call(capsys, "export", finished, "--candidate", "abc")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "ran no candidate 'abc'" in err
    code, _, err = call(capsys, "export", finished, "--target", "abacus")
    assert code == 2
    assert "unknown target" in err
    code, _, err = call(capsys, "export", finished, "--output", tmp_path / "no" / "such.py")
    assert code == 1
    assert "cannot be written" in err


def test_critique_refuses_what_it_cannot_do(capsys, finished, tmp_path):
    code, _, err = call(capsys, "critique", finished, "--candidate", "abc")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "ran no candidate 'abc'" in err
    assert call(capsys, "critique", finished, "--tasks", "0")[0] == 2
    Store.create(tmp_path / "young", asdict(SearchConfig())).close()
    code, _, err = call(capsys, "critique", tmp_path / "young")
    assert (code, "name a candidate" in err) == (1, True)


@pytest.mark.slow
def test_a_candidate_is_criticised(capsys, finished):
    report = json.loads(call(capsys, "runs", "show", finished, "--json")[1])
    asked = ("critique", finished, "--tasks", "4", "--workers", "0")
    code, out, err = call(capsys, *asked, "--json")
    assert code == 0, err
    evidence = json.loads(out)
    assert evidence["candidate"] == report["best"]["id"]
    assert evidence["failed"] == len(evidence["findings"]) + len(evidence["skipped"])
    assert "forks computed" in call(capsys, *asked)[1]


@pytest.mark.slow
def test_a_small_search_with_the_reference_agent(capsys, tmp_path):
    """search, export, eval: the exported module's row is the search's."""
    code, out, err = call(capsys, "search", "--quick", "--json", "--runs", tmp_path)
    assert code == 0, err
    report = json.loads(out)
    module = tmp_path / "exported.py"
    assert call(capsys, "export", report["run_dir"], "--output", module)[0] == 0
    asked = ("--split", "test", "--tasks", SearchConfig(**QUICK).test, "--json")
    code, out, err = call(capsys, "eval", module, *asked)
    assert code == 0, err
    (row,) = json.loads(out)["policies"]
    for key in ("accuracy", "accuracy_ci", "cost_ratio", "cost_ratio_ci", "kv_read_share", "n"):
        assert row[key] == report["best"]["test"][key]
