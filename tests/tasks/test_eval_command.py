"""`akv-rsi eval`, with the toy agent in place of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from toy import toy_agent, toy_format

from akv_rsi.cli import run
from akv_rsi.tasks.load import find_model

POLICY = """
from akv_rsi.policies.dsl import Context, drop, tunable

KEEP = tunable("keep", 1, 9, default=1)

def policy(ctx: Context) -> None:
    for seg in ctx.segments:
        if seg.kind == "tool_result" and not seg.dropped and seg.age >= KEEP:
            drop(seg)
"""
BASE = ["eval", "--suite", "toy:own_suite", "--tasks", "4", "--workers", "0"]


@pytest.fixture(autouse=True)
def _toy_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> Any:
        return (Path(), toy_format()) if name == "reference" else find_model(name)

    monkeypatch.setattr("akv_rsi.cli.evaluators.find_model", find)
    monkeypatch.setattr("akv_rsi.cli.evaluators.load_agent", lambda *_: toy_agent())


def evaluated(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run([*BASE, *arguments, "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_rows_of_built_in_policies_and_files(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(POLICY)
    result = evaluated(capsys, "full", "oracle", "rolling_drop:keep=2", str(mine), f"{mine}:keep=9")
    assert (result["tasks"], result["split"], result["prices"]) == (4, "validation", "claude")
    rows = {row["name"]: row for row in result["policies"]}
    assert list(rows) == ["full", "oracle", "rolling_drop:keep=2", str(mine), f"{mine}:keep=9"]
    for row in rows.values():
        assert {"accuracy_ci", "cost_ratio_ci", "kv_read_share", "fixed_cost_ratio"} <= set(row)
        assert row["n"] == 4
        assert row["engine"]["calls"] > 0
    assert rows["full"]["cost_ratio"] == rows["full"]["fixed_cost_ratio"] == 1.0
    assert rows["oracle"]["accuracy"] == 1.0
    assert rows["oracle"]["cost_ratio"] < 1.0
    assert rows[str(mine)]["accuracy"] == 0.0
    assert rows[f"{mine}:keep=9"]["accuracy"] > 0.0
    assert rows["rolling_drop:keep=2"]["tunables"] == {"keep": 2}


def test_everything_built_in_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    names = [row["name"] for row in evaluated(capsys)["policies"]]
    assert names[0] == "full"
    assert {"oracle", "truncate", "trim", "summarise", "rolling_drop"} <= set(names)


def test_the_same_command_gives_the_same_rows(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (evaluated(capsys, "trim", "oracle") for _ in range(2))
    for result in (first, second):
        for row in result["policies"]:
            row["engine"] = {
                k: v for k, v in row["engine"].items() if "tt" not in k and "itl" not in k
            }
    assert first == second


def test_a_table_for_people(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    assert run([*BASE, "full", "oracle"]) == 0
    out = capsys.readouterr().out
    assert "oracle" in out
    assert "4 validation tasks" in out


def test_a_suite_without_hindsight_has_no_oracle_row(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["eval", "full", "oracle", "--suite", "toy:plain_suite", "--tasks", "2"]
    assert run([*arguments, "--workers", "0", "--json"]) == 0
    full, oracle = json.loads(capsys.readouterr().out)["policies"]
    assert full["accuracy"] == 1.0
    assert full["fixed_cost_ratio"] is None
    assert oracle["accuracy"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "unknown policy"),
        (["rolling_drop:keep"], "keep=4"),
        (["rolling_drop:kep=4"], "no tunable kep"),
        (["full", "--suite", "nowhere"], "unknown suite"),
        (["full", "--model", "nowhere"], "unknown model"),
        (["full", "--prices", "nowhere"], "unknown prices"),
        (["full", "--tasks", "0"], "at least one task"),
        (["full", "--split", "rest"], "split"),
        (["full", "--workers=-1"], "workers"),
        (["missing.py"], "cannot be read"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_and_an_exit_code(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    given = {name.partition("=")[0] for name in arguments if name.startswith("--")}
    options = {"--suite": "toy:own_suite", "--tasks": "4", "--workers": "0"}
    rest = [word for name in options.keys() - given for word in (name, options[name])]
    assert run(["eval", *arguments, *rest]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.strip().count("\n") == 0
    assert captured.out == ""


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("    drop(", 2, "line"),
        ("    import os", 2, "line"),
        ("    evict(ctx.segments[0])", 2, "evict"),
        ("    while True: pass", 1, "endless loop"),
        ("    x = [0]\n    while True: x = x + x", 1, "memory"),
        ("    if ctx.turn: drop(ctx.segments[-1])", 1, "current turn"),
        ("    drop(ctx.segments[0])", 1, "pinned"),
    ],
)
def test_bad_policies_are_told_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, body: str, code: int, words: str
) -> None:
    path = tmp_path / "bad.py"
    head = "from akv_rsi.policies.dsl import Context, drop\n\n"
    path.write_text(f"{head}def policy(ctx: Context) -> None:\n{body}\n")
    assert run([*BASE, str(path)]) == code
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("akv-rsi:")]
    assert len(lines) == 1
    assert words in lines[0]
