"""What `akv-rsi bench llm` says of proposals, one fate each."""

import json

import pytest
from fake_llm import BAD, GOOD, FakeLLM, Rule, probing, proposal
from synthetic import SyntheticEvaluator

from akv_rsi.cli import bench_llm, run

IDLE = """from akv_rsi.policies.dsl import Context


def policy(ctx: Context) -> None:
    pass
"""
UNSOUND = """from akv_rsi.policies.dsl import Context, drop


def policy(ctx: Context) -> None:
    for seg in ctx.segments:
        drop(seg.text)
"""
CRASHES = """from akv_rsi.policies.dsl import Context, drop


def policy(ctx: Context) -> None:
    drop(ctx.segments[0])
"""
DEAR = """from akv_rsi.policies.dsl import Context, drop


def policy(ctx: Context) -> None:
    for seg in ctx.segments:
        if seg.tool == "poll" and seg.age >= 6:
            drop(seg)
"""


class World(SyntheticEvaluator):
    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass


@pytest.fixture(autouse=True)
def world(monkeypatch):
    monkeypatch.setattr(bench_llm, "make_evaluator", lambda *_: World())


def test_each_proposal_has_its_fate(capsys):
    good, fit = GOOD.format(keep=2), "fit to run"
    told = {
        "nothing to say": "no answer",
        BAD: "LintError",
        UNSOUND: "LintError",
        CRASHES: "PolicyCrash",
        IDLE: "does nothing",
        DEAR: "dear",
        good: fit,
    }
    answers = [text if text == "nothing to say" else proposal(text) for text in told]
    with FakeLLM([probing(), Rule(("differs in its idea",), [*answers, proposal(good)])]) as fake:
        asked = ["bench", "llm", "--llm", "m", "--llm-base-url", fake.url, "--count", "8"]
        assert run([*asked, "--json"]) == 0
        about = json.loads(capsys.readouterr().out)
    fates = {row["source"]: row["fate"] for row in about["each"] if row["fate"] != "duplicate"}
    assert {text: fate.partition(":")[0] for text, fate in fates.items()} == told
    assert "line 6: " in fates[UNSOUND]
    assert about["fates"]["duplicate"] == 1
    assert (about["proposals"], about["fingerprints"]) == (8, 3)
    assert about["best_support"] > 0


def test_a_model_that_cannot_be_asked_is_told_at_once(capsys):
    with FakeLLM([Rule(("test of the form",), [401])]) as fake:
        assert run(["bench", "llm", "--llm", "m", "--llm-base-url", fake.url]) == 2
    assert "refused HTTP 401; name the variable" in capsys.readouterr().err
