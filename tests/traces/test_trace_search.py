"""A search on recorded conversations: what counts as lost, who goes where, the whole command."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from make import conversation, document, turn

from akv_rsi.cli import run
from akv_rsi.errors import ConfigError
from akv_rsi.policies import library
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.tasks.cost import PRESETS
from akv_rsi.tasks.decide import open_decider
from akv_rsi.tasks.episode import TaskRef
from akv_rsi.tasks.suites import FIRST_SEED
from akv_rsi.tasks.traces.calibrate import calibrate
from akv_rsi.tasks.traces.corpus import SPLITS, Corpus, load_corpus
from akv_rsi.tasks.traces.evaluator import TraceEvaluator
from akv_rsi.tasks.traces.model import Modelled, model
from akv_rsi.tasks.traces.needs import evidence_of
from akv_rsi.tasks.traces.objective import Judged, Risk
from akv_rsi.tasks.traces.policy_costs import bill_context, work_of
from akv_rsi.tasks.traces.provider import Tariff
from akv_rsi.tasks.traces.read import Reading
from akv_rsi.tasks.traces.replays import Ahead, Replayed, Replayer, Setting
from akv_rsi.types import Call, Segment, Trajectory, Usage

DEEPSEEK = Tariff(PRESETS["deepseek"])
SETTING = Setting(DEEPSEEK.prices, 3000, 40)


def made(*names: str) -> Modelled:
    """A call and a result of 100 tokens for each name; call k writes 10 tokens, ``names[k]``."""
    segments = [Segment(0, "system", 0, 0, 50, "", pinned=True)]
    calls: list[Call] = []
    end = 50
    for number, name in enumerate(names):
        calls.append(Call(end, calls[-1].prompt + 10 if calls else 0, 10))
        segments.append(Segment(len(segments), "tool_call", number, end, end + 10, name))
        end += 10
        text = f"see src/f{number}.py"
        segments.append(
            Segment(len(segments), "tool_result", number, end, end + 100, text, "open", name)
        )
        end += 100
    trajectory = Trajectory("made", tuple(segments), tuple(calls))
    return Modelled(trajectory, "start", (None,) * len(names), (0,) * len(names))


def judged(one: Modelled, spec: PolicySpec) -> Judged:
    with Replayer([spec], SETTING) as replayer:
        (replayed,) = replayer.run(one)
    assert isinstance(replayed, Replayed)
    return Risk().judge(one, replayed, bill_context(one, replayed.calls, DEEPSEEK).usages)


DROP = library.spec("rolling_drop", keep=1)


def test_a_call_that_names_what_is_gone_is_lost_and_pays_for_one_more_call() -> None:
    """Results are dropped one turn after they came. Call 3 names the first one, 100 tokens long.

    To have it again, the agent writes call 0 anew (10 tokens) and takes in the result: 110 tokens
    are computed, and the prompt of call 3 is read: 50 + 3 * 110 tokens less two dropped results.
    """
    late = made("a", "b", "c", "src/f0.py")
    found = judged(late, DROP)
    assert (found.kept, found.lost) == (3, 1)
    assert found.refetched == Usage(1, 110, 50 + 3 * 110 - 200, 110, 10)
    assert judged(late, library.spec("full")) == Judged(4, 0, Usage())
    assert judged(made("a", "b", "src/f1.py", "d"), DROP).lost == 0


def test_what_was_fetched_again_is_there_from_then_on() -> None:
    found = judged(made("a", "b", "c", "src/f0.py", "src/f0.py x", "src/f1.py"), DROP)
    assert (found.lost, found.refetched.calls) == (2, 2)


def test_text_that_no_tool_brought_cannot_be_fetched_and_is_lost_each_time() -> None:
    one = made("seek q7/x.py", "b", "q7/x.py", "d", "e", "q7/x.py z")
    program = (
        "from akv_rsi.policies.dsl import Context, drop\n\n\ndef policy(ctx: Context) -> None:\n"
        "    for seg in ctx.segments:\n        if seg.kind == 'tool_call' and seg.age >= 1:\n"
        "            drop(seg)\n"
    )
    found = judged(one, PolicySpec("p", source=program, trusted=True))
    assert found.refetched == Usage()
    assert found.lost == 2


def test_edits_of_the_text_are_judged_alike() -> None:
    late = made("a", "b", "c", "src/f0.py")
    assert judged(late, library.spec("trim", keep=1, batch=2)).lost == 1


def test_fetching_the_same_again_tells_that_it_was_wanted(tmp_path: Path) -> None:
    """The third call repeats the first; only if its result is the same was that still wanted."""
    for last, expected in (("x" * 300, [0, 0, 1]), ("y" * 300, [0, 0, 0]), ("ok", [0, 0, 0])):
        messages = [{"role": "user", "content": "task"}, *turn(0, "x" * 300), *turn(1, "other")]
        messages += turn(2, last, args={"n": 0})
        (trace,) = Reading([document(tmp_path / "again.json", {"messages": messages})])
        (one,) = model(trace, calibrate(trace))
        assert [len(named) for named in evidence_of(one)] == expected


def test_hindsight_drops_all_that_no_later_call_names() -> None:
    late = made("a", "b", "c", "src/f0.py")
    assert [sorted(Ahead(late)._needed[call]) for call in (0, 3)] == [[2], [2]]
    found = judged(late, PolicySpec("oracle", kind="oracle"))
    assert found.lost == 0
    with (
        open_decider(PolicySpec("oracle", kind="oracle")),
        Replayer([PolicySpec("oracle", kind="oracle")], SETTING) as replayer,
    ):
        (replayed,) = replayer.run(late)
    assert isinstance(replayed, Replayed)
    assert replayed.gone[3] == {1, 3, 4}


# --- conversations as tasks


KEY = "sk-ant-api03-Zq7Xw9Kp2Lm4Nb8Vc6Rt1Yu3Hs5Jd0Fg"


def chat(folder: Path, number: int, turns: int = 9) -> Path:
    """Each call names what the result before named; results are long, so that dropping pays."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are an agent. " * 20},
        {"role": "user", "content": f"Task {number}. {KEY} " * 5},
    ]
    for at in range(turns):
        text = f"{KEY} next is src/n{number}_{at + 1}.py. " + f"line {number}.{at} " * 120
        messages += turn(at, text, args={"path": f"src/n{number}_{at}.py"})
    return document(folder / f"{number:02}.json", {"messages": messages})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "traces"
    place.mkdir()
    for number in range(12):
        chat(place, number, 6 + number % 5)
    return place


def corpus(*paths: Path, seed: int = 0) -> Corpus:
    return load_corpus([str(path) for path in paths], DEEPSEEK, 12_000, seed)


def names(found: Corpus, split: Any) -> set[str]:
    return {item.contexts[0].trajectory.id for item in found.splits[split]}


def test_the_split_is_by_conversation_and_fair(folder: Path) -> None:
    found = corpus(folder)
    assert [len(found.splits[split]) for split in SPLITS] == [4, 4, 4]
    assert len(set().union(*(names(found, split) for split in SPLITS))) == 12
    for split in SPLITS:
        costs = [item.cost for item in found.splits[split]]
        assert costs == sorted(costs, reverse=True)
        assert len({round(cost / 500) for cost in costs}) > 1
    assert "12 recorded conversations" in found.about
    assert "12 openai_chat" in found.about


def test_a_corpus_is_named_by_content_and_deal(folder: Path) -> None:
    one = corpus(folder)
    assert corpus(folder).name == one.name
    assert corpus(folder, seed=1).name != one.name
    chat(folder, 3, 8)
    assert corpus(folder).name != one.name


def test_a_conversation_that_is_there_twice_serves_once(folder: Path) -> None:
    (folder / "copy.json").write_text((folder / "05.json").read_text())
    assert corpus(folder).name == corpus(*sorted(folder.glob("[01]*.json"))).name


def test_many_long_conversations_are_cut_earlier_than_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sizes() -> list[int]:
        found = load_corpus([str(folder)], DEEPSEEK, 10_000, 0)
        return sorted(work_of(item.contexts) for row in found.splits.values() for item in row)

    whole = sizes()
    monkeypatch.setattr("akv_rsi.tasks.traces.corpus.LEAST", 50)
    monkeypatch.setattr("akv_rsi.tasks.traces.corpus.ENOUGH", sum(whole) - 1)
    assert sizes()[:3] == whole[:3]
    assert max(whole) > max(sizes()) > 50
    monkeypatch.setattr("akv_rsi.tasks.traces.corpus.ENOUGH", 1)
    assert 20 < max(sizes()) <= 50


def test_what_does_not_serve_is_told(folder: Path) -> None:
    assert "the first" not in corpus(folder).about
    assert corpus(folder).notes == ()
    chat(folder, 90, 2)
    (folder / "91.json").write_bytes(chat(folder, 91).read_bytes()[:-200])
    (folder / "readme.txt").write_text("no transcript")
    found = load_corpus([str(folder)], DEEPSEEK, 100, 0)
    assert re.search(r"the first \d+ of \d+ calls", found.about)
    first, *more = found.notes
    assert first == "not used: 1 with fewer than 5 calls"
    assert [line.split(": ", 1)[1][:12] for line in more] == ["no JSON: the", "no reader kn"]


def test_tasks_find_their_conversation(folder: Path) -> None:
    found = corpus(folder)
    task = TaskRef(found.name, FIRST_SEED["test"] + 1, "test")
    assert found.item(task) is found.splits["test"][1]


def test_results_do_not_depend_on_the_number_of_workers(folder: Path) -> None:
    found = corpus(folder)
    tasks = [TaskRef(found.name, FIRST_SEED["train"] + k, "train") for k in range(4)]
    specs = [library.spec("full"), DROP, library.spec("summarise"), PolicySpec("bad", source="x")]
    rows = []
    for workers in (0, 2):
        with TraceEvaluator(found, Risk(), SETTING, workers) as evaluator:
            rows.append(evaluator.run(specs, tasks))
            assert evaluator.totals.episodes == 16
    assert rows[0] == rows[1]
    full, drop, _, bad = rows[0]
    assert [episode.success for episode in full] == [1.0] * 4
    assert sum(e.cost for e in drop) < sum(e.cost for e in full)
    assert {episode.outcome for episode in bad} == {"policy_error"}


# --- the command


def searched(folder: Path, runs: Path, *more: str) -> int:
    arguments = ["search", "--traces", str(folder), "--budget", "0.9", "--quick", "--json"]
    arguments += ["--prices", "deepseek", "--runs", str(runs), "--workers", "0"]
    return run([*arguments, *more])


def test_search_export_and_resume(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path
) -> None:
    assert searched(folder, tmp_path / "runs") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["measure"] == "calls kept"
    assert "4 train, 4 validation, 4 test" in report["found_on"]
    assert report["keep_everything"]["test"]["accuracy"] == 1.0
    best = report["best"]["test"]
    assert best["accuracy"] == 1.0
    assert best["cost_ratio"] <= 0.9
    assert report["oracle"]["test"]["cost_ratio"] <= best["cost_ratio"]
    assert run(["search", "--resume", report["run_dir"], "--workers", "0", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["best"] == report["best"]
    module = tmp_path / "found.py"
    assert run(["export", report["run_dir"], "--output", str(module)]) == 0
    text = module.read_text()
    assert f"Found on: {report['found_on']}" in text
    assert f"--traces {folder}" in text
    assert "calls kept" in text
    capsys.readouterr()
    for path in (p for p in (module, *Path(report["run_dir"]).rglob("*")) if p.is_file()):
        assert KEY.encode() not in path.read_bytes(), path
    chat(folder, 1, 5)
    assert run(["search", "--resume", report["run_dir"], "--workers", "0"]) == 2
    assert "not those this run began on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (0, "no files in"),
        (1, "1 usable conversations in"),
        (5, "a search needs 6, two for each split"),
        (-8, "8 with fewer than 5 calls"),
    ],
)
def test_too_little_is_one_clear_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, files: int, words: str
) -> None:
    place = tmp_path / "few"
    place.mkdir()
    for number in range(abs(files)):
        chat(place, number, 9 if files > 0 else 3)
    assert searched(place, tmp_path / "runs") == 2
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if line.startswith("akv-rsi:")]
    assert len(lines) == 1
    assert words in lines[0]
    assert not (tmp_path / "runs").exists()


def test_a_suite_and_transcripts_exclude_each_other(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path
) -> None:
    assert searched(folder, tmp_path, "--suite", "repo") == 2
    assert "exclude each other" in capsys.readouterr().err


def test_an_empty_prompt_is_no_obstacle() -> None:
    """Recordings begin with a call of which they show no prompt."""
    segments = (Segment(0, "assistant", 0, 0, 10, "hello"),)
    one = Modelled(Trajectory("e", segments, (Call(0, 0, 10),)), "start", (None,), (0,))
    assert judged(one, PolicySpec("oracle", kind="oracle")) == Judged(1, 0, Usage())
    with pytest.raises(ConfigError, match="does not exist"):
        load_corpus(["nowhere"], DEEPSEEK, 1, 0)
    assert conversation(["a"])


@pytest.mark.slow
def test_a_model_can_judge_instead(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path
) -> None:
    assert searched(folder, tmp_path / "runs", "--model", "reference") == 0
    report = json.loads(capsys.readouterr().out)
    assert "fidelity by reference" in report["found_on"]
    assert report["keep_everything"]["test"]["accuracy"] == 1.0
    assert 0 < report["best"]["test"]["accuracy"] <= 1.0
    assert report["best"]["test"]["cost_ratio"] < 1.0
