"""Fidelity: one pass scores all calls of a context, edits and ops alike, and finds what hurt."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make import conversation, document, turn

from akv_rsi.cli import run
from akv_rsi.config import EngineConfig
from akv_rsi.policies import library
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.tasks.cost import PRESETS
from akv_rsi.tasks.environment import Message
from akv_rsi.tasks.load import load_engine
from akv_rsi.tasks.reference.model import load_reference
from akv_rsi.tasks.script import demonstrate
from akv_rsi.tasks.suites import load_suite
from akv_rsi.tasks.traces.calibrate import calibrate
from akv_rsi.tasks.traces.draft import Options
from akv_rsi.tasks.traces.fidelity import Fidelity, ModelObjective
from akv_rsi.tasks.traces.model import Modelled, model
from akv_rsi.tasks.traces.read import Reading
from akv_rsi.tasks.traces.replays import Replayed, Replayer, Setting
from akv_rsi.tasks.traces.scripts import Script, script_of
from akv_rsi.types import OpHistory
from akv_rsi.visibility import Visibility

SETTING = Setting(PRESETS["claude"], 448)
DROP = library.spec("rolling_drop", keep=1)
SEEN, UNSEEN = -0.5, -4.0


class Words:
    """A format of one token a word, that stands for nothing else."""

    stop = frozenset({0})
    reliable_span = max_new_tokens = max_summary_tokens = 100

    def __init__(self) -> None:
        self.ids: dict[str, int] = {"<end>": 0, "<agent>": 1, "<other>": 2}

    def encode(self, message: Message) -> list[int]:
        agent = message.kind in ("assistant", "tool_call", "reasoning")
        words = ["<agent>" if agent else "<other>", *message.text.split(), "<end>"]
        return [self.ids.setdefault(word, len(self.ids)) for word in words]

    def prompt(self) -> list[int]:
        return [1]

    def decode(self, tokens: Any) -> str:
        return ""

    def summary_request(self) -> Message:
        return Message("user", "")


class Copies:
    """Finds a word likely if the same one is visible before it: an engine one can count by hand."""

    def scores(self, tokens: Any, history: OpHistory, cuts: Any) -> list[float]:
        found = []
        for i in range(1, len(tokens)):
            seen = Visibility.replay(i, history.upto(i)).visible_ranges
            known = {int(t) for a, b in seen for t in tokens[a:b]}
            found.append(SEEN if int(tokens[i]) in known else UNSEEN)
        return found


def recorded(folder: Path, *names: str) -> Modelled:
    """Call k writes ``names[k]``; its result tells ``fact-k``."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "be"}]
    messages.append({"role": "user", "content": "task"})
    for number, name in enumerate(names):
        said, result = turn(number, f"fact-{number} is here", args={})
        messages += [{"role": "assistant", "content": name}, {"role": "user", "content": "go"}]
        messages += [said | {"content": None}, result]
    path = document(folder / "r.json", {"messages": messages})
    (trace,) = Reading([path], Options(clip=1 << 20))
    (one,) = model(trace, calibrate(trace))
    return one


def under(script: Script, spec: PolicySpec) -> Replayed:
    with Replayer([spec], SETTING) as replayer:
        (replayed,) = replayer.run(script.context)
    assert isinstance(replayed, Replayed)
    return replayed


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Calls 0, 2, 4 and 6 write the names; the last one names the first result's fact."""
    found = script_of(recorded(tmp_path, "a", "b", "c", "fact-0"), Words(), 10_000)
    assert found is not None
    return found


def test_a_script_counts_the_models_tokens(script: Script) -> None:
    context = script.context.trajectory
    assert context.segments[-1].end == len(script.tokens)
    ends = [0, *(call.prompt + call.output for call in context.calls)]
    assert [call.reused for call in context.calls] == ends[:-1]
    ((start, end),) = script.spoken(6)
    (answer,) = [s for s in context.segments if s.kind == "assistant" and s.text == "fact-0"]
    assert (start, end) == (answer.start + 1, answer.end)


def test_what_a_policy_takes_away_costs_the_call_that_names_it(script: Script) -> None:
    fidelity = Fidelity(Copies())
    kept = fidelity.calls(script, under(script, library.spec("full")))
    assert all(score.gap == 0 and score.kept == 1 for score in kept)
    scores = fidelity.calls(script, under(script, DROP))
    lost = [number for number, score in enumerate(scores) if score.gap < 0]
    assert 6 in lost
    assert scores[6].policy - scores[6].full == pytest.approx(UNSEEN - SEEN)


def test_edits_of_the_text_cost_the_same(script: Script) -> None:
    trimmed = under(script, library.spec("trim", keep=1, batch=2))
    scores = Fidelity(Copies()).calls(script, trimmed)
    assert scores[6].policy - scores[6].full == pytest.approx(UNSEEN - SEEN)


@pytest.mark.parametrize("spec", [DROP, library.spec("trim", keep=1, batch=2)])
def test_the_span_whose_loss_hurt_is_found(script: Script, spec: PolicySpec) -> None:
    hurt, *others = Fidelity(Copies()).hurts(script, under(script, spec), 9)
    assert "fact-0" in hurt.segment.text
    assert hurt.call == 6
    assert hurt.nats == pytest.approx(SEEN - UNSEEN)
    assert all(other.nats <= hurt.nats for other in others)


def test_as_an_objective_a_call_is_kept_as_far_as_it_stays_likely(script: Script) -> None:
    objective = ModelObjective(Copies, {script.context.trajectory.id: script})
    calls = len(script.context.trajectory.calls)
    assert objective.judge(script.context, under(script, library.spec("full")), ()).kept == calls
    judged = objective.judge(script.context, under(script, DROP), ())
    assert 0 < judged.lost < calls
    assert judged.kept < calls


def test_decisions_that_were_judged_are_not_run_again(script: Script) -> None:
    passes = list[int]()

    class Counted(Copies):
        def scores(self, tokens: Any, history: OpHistory, cuts: Any) -> list[float]:
            passes.append(len(tokens))
            return super().scores(tokens, history, cuts)

    objective = ModelObjective(Counted, {script.context.trajectory.id: script})
    trim = library.spec("trim", keep=1)
    first = [objective.judge(script.context, under(script, s), ()) for s in (DROP, trim)]
    ran = len(passes)
    again = [objective.judge(script.context, under(script, s), ()) for s in (DROP, trim)]
    assert again == first
    assert len(passes) == ran > 1


def test_only_what_fits_is_scored(tmp_path: Path) -> None:
    one = recorded(tmp_path, "a", "b", "c", "fact-0")
    short = script_of(one, Words(), 30)
    assert short is not None
    assert len(short.tokens) <= 30
    assert 2 <= len(short.context.times) < 8
    assert script_of(one, Words(), 8) is None


# --- with the reference agent


@cache
def engine() -> Any:
    return load_engine(load_reference()[0], EngineConfig(threads=1))


@cache
def demonstrated() -> Script:
    chat = load_reference()[1]
    environment = load_suite("repo").environment(1_000_000)
    recorded = demonstrate("repo", environment, chat, SETTING.prices, 200)
    assert recorded is not None
    count = len(recorded.calls)
    found = script_of(Modelled(recorded, "start", (None,) * count, (0,) * count), chat, 4096)
    assert found is not None
    assert len(found.tokens) == recorded.segments[-2].end  # what answered the last call is none
    return found


@pytest.mark.parametrize("name", ["rolling_drop_refresh", "rolling_drop_repos"])
def test_one_pass_scores_each_call_as_a_pass_of_its_own_does(name: str) -> None:
    script = demonstrated()
    replayed = under(script, library.spec(name, keep=1))
    history = OpHistory(tuple(op for call in replayed.calls for op in call.ops))
    assert len(history) > 3
    scores = Fidelity(engine()).calls(script, replayed)
    for number in (5, len(scores) - 1):
        call = script.context.trajectory.calls[number]
        end = call.prompt + call.output
        logits = engine().logits(script.tokens[:end], history.upto(call.prompt))
        likely = logits.log_softmax(-1).numpy()
        expected = sum(
            likely[t - 1, script.tokens[t]] for a, b in script.spoken(number) for t in range(a, b)
        )
        assert scores[number].policy == pytest.approx(float(expected), abs=1e-3)


def test_trimmed_text_is_scored_as_the_text_it_is() -> None:
    script = demonstrated()
    replayed = under(script, library.spec("trim", keep=2, batch=2))
    assert replayed.edits
    number = len(replayed.gone) - 1
    call = script.context.trajectory.calls[number]
    kept = [s for s in script.context.trajectory.segments if s.id not in replayed.gone[number]]
    kept = [s for s in kept if s.end <= call.prompt + call.output]
    text = [token for s in kept for token in script.tokens[s.start : s.end]]
    likely = engine().logits(text, OpHistory()).log_softmax(-1).numpy()
    ((start, end),) = script.spoken(number)
    count = end - start
    expected = sum(likely[i - 1, text[i]] for i in range(len(text) - count, len(text)))
    scores = Fidelity(engine()).calls(script, replayed)
    assert scores[number].policy == pytest.approx(float(expected), abs=1e-3)
    assert np.isfinite(expected)


# --- the command


def measured(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["fidelity", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_command_on_a_suite(capsys: pytest.CaptureFixture[str]) -> None:
    policies = ["--policy", "full", "--policy", "rolling_drop:keep=1"]
    report = measured(capsys, "--suite", "repo", "--conversations", "2", "--spans", "2", *policies)
    full, drop = report["policies"]
    assert full["gap_per_token"] == {"estimate": 0.0, "low": 0.0, "high": 0.0}
    assert (full["kept"], full["cost_ratio"]) == (1.0, 1.0)
    assert drop["gap_per_token"]["estimate"] < 0
    assert drop["kept"] < 1
    assert drop["worst_calls"][0]["gap"] < 0
    assert drop["hurt_most"][0]["kind"]


def test_the_command_on_transcripts_for_people(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    path = document(tmp_path / "t.json", {"messages": conversation(["open view"] * 6)})
    policies = ("--policy", "rolling_drop:keep=1", "--policy", "rolling_drop:keep=9")
    assert run(["fidelity", str(path), *policies, "--tokens", "900"]) == 0
    out = capsys.readouterr().out
    assert "reference: 1 conversation, the first 900 tokens" in out
    assert "nats per token" in out
    lines = out.splitlines()
    (dropped, kept) = (line for line in lines if line.startswith("│ rolling_drop"))
    assert [int(line.split()[-2][:-1]) > 0 for line in (dropped, kept)] == [True, False]
    assert "rolling_drop:keep=9 took nothing away in the first 900 tokens" in out
    assert any(line.startswith("rolling_drop:keep=1: worst call: call ") for line in lines)
    report = measured(capsys, str(path), "--policy", "rolling_drop:keep=1", "--redact")
    assert all(h["text"].startswith("#") for h in report["policies"][0]["hurt_most"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "and not both"),
        (["x.json", "--suite", "repo"], "and not both"),
        (["x.json"], "does not exist"),
        (["--suite", "repo", "--tokens", "1"], "--tokens"),
        (["--suite", "repo", "--tokens", "9"], "two calls within 9 tokens"),
        (["--suite", "repo", "--model", "./nowhere"], "unknown model"),
        (["--suite", "repo", "--policy", "cloud"], "unknown policy"),
    ],
)
def test_bad_input_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert run(["fidelity", *arguments]) == 2
    lines = [x for x in capsys.readouterr().err.splitlines() if x.startswith("akv-rsi:")]
    assert len(lines) == 1
    assert words in lines[0]
