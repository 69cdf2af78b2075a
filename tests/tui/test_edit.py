"""Edit and try: lint, numbers, a trial in another process, saving; nothing is overwritten."""

import asyncio
import json
import sys

import pytest
from piloting import NARROW, WIDE, drive, press, settle, text, until

from akv_rsi.errors import TaskError
from akv_rsi.insight import trial as trials
from akv_rsi.insight.run import Run
from akv_rsi.insight.trial import attempt
from akv_rsi.policies.lint import lint
from akv_rsi.policies.tunables import redeclare, tunables_of
from akv_rsi.tui.confirm import Ask, Confirm
from akv_rsi.tui.editor import Editor
from akv_rsi.tui.pane import Pane
from akv_rsi.tui.tried import Draft, problems_of

FAKE = """
import json, os, sys, time
argv, told = sys.argv[1:], {told!r}
print(json.dumps({{"argv": argv, "sources": [open(a).read() for a in argv[1:3]],
                  "pid": os.getpid()}}), file=open(told, "w"))
{body}
"""
# The edited policy wins task 0, all else is equal, and it costs 80% of the original.
ANSWER = """
def row(name, solved, cost, outcomes=("done",) * 4):
    return {"name": name, "episodes": [
        {"task": f"repo/{i}", "success": s, "cost": cost, "outcome": o, "detail": d}
        for i, (s, o) in enumerate(zip(solved, outcomes))
        for d in ["" if o == "done" else "line 3: boom"]]}
for done in range(5):
    print(f"episodes {done}/12", file=sys.stderr, flush=True)
"""
GOOD = (
    ANSWER
    + """
print(json.dumps({"policies": [row("full", [1, 1, 0, 0], 10.0), row("a", [0, 1, 0, 0], 5.0),
                               row("b", [1, 1, 0, 0], 4.0)]}))
"""
)


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """Puts a program in place of the evaluation; returns what it was told."""

    def install(body):
        told, program = tmp_path / "told.json", tmp_path / "fake.py"
        program.write_text(FAKE.format(told=str(told), body=body))
        monkeypatch.setattr(trials, "EVAL", (sys.executable, str(program)))
        return lambda: json.loads(told.read_text())

    return install


def run_trial(run, heard=None):
    hear = (lambda *progress: heard.append(progress)) if heard is not None else lambda *_: None
    return asyncio.run(attempt(run, "original", "edited", "train", 4, hear))


def test_a_trial_is_asked_as_the_run_was_and_paired_task_by_task(recorded, fake):
    told, heard = fake(GOOD), []
    trial = run_trial(recorded, heard)
    argv = told()["argv"]
    assert argv[0] == "full"
    assert told()["sources"] == ["original", "edited"]
    assert "--split=train" in argv
    assert "--tasks=4" in argv
    assert "--model=reference" in argv
    assert argv.count("--suite") == len(recorded.config.suites)
    assert heard == [(done, 12) for done in range(5)]
    assert trial.accuracy.difference.estimate == 0.25
    assert trial.accuracy.verdict == "undecided", "one task of four proves nothing"
    assert trial.cost == pytest.approx((0.8, 0.8, 0.8))
    assert (trial.won, trial.lost) == (("repo/0",), ())
    assert [c.cost_ratio.estimate for c in trial.contenders] == [1.0, 0.5, 0.4]


def test_an_episode_that_an_error_ended_is_not_cheap_and_a_lost_task_is_none(recorded, fake):
    fake(
        ANSWER
        + """
bad = ("policy_error", "infrastructure", "done", "done")
print(json.dumps({"policies": [row("full", [1] * 4, 10.0), row("a", [1] * 4, 5.0),
                               row("b", [0, 0, 1, 1], 1.0, bad)]}))
"""
    )
    trial = run_trial(recorded)
    assert (trial.n, trial.excluded, trial.problem) == (3, 1, "line 3: boom")
    assert trial.cost.estimate == pytest.approx((10 + 1 + 1) / 15)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("sys.stderr.write('akv-rsi: no model there\\n'); sys.exit(2)", "failed: no model there"),
        ("os.kill(os.getpid(), 9)", "ended by signal 9"),
        ("sys.exit(3)", "exit code 3, and it said nothing"),
        ("print('no json')", "printed no result"),
    ],
)
def test_a_failed_evaluation_says_why(recorded, fake, body, message):
    fake(body)
    with pytest.raises(TaskError, match=message):
        run_trial(recorded)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_number_is_changed_tried_and_saved(recorded, fake, tmp_path, monkeypatch):
    fake(GOOD)
    monkeypatch.chdir(tmp_path)

    async def steps(app, pilot):
        await press(app, pilot, "7")
        editor = app.pane.query_one(Editor)
        seen, (first, *_) = app.shown.policy, tunables_of(editor.text)
        assert editor.text == redeclare(seen.spec.source, seen.candidate.values)
        await press(app, pilot, "left" if first.default > first.low else "right")
        changed = tunables_of(editor.text)[0]
        assert changed.default != first.default
        await press(app, pilot, "enter")
        assert isinstance(app.screen, Ask)
        await press(app, pilot, "end", *"9999", "enter")
        assert "is outside" in str(app.screen.query_one("#problem").render())
        await press(app, pilot, "escape", "ctrl+r")
        await until(pilot, lambda: "edited - original" in text(app.pane.query_one("#told")))
        shown = text(app.pane.query_one("#told"))
        assert "+0.250" in shown
        assert "undecided" in shown
        assert "won: repo/0" in shown
        await press(app, pilot, "q")
        assert isinstance(app.screen, Confirm), "it is not saved"
        await press(app, pilot, "n", "ctrl+s", "enter")
        await press(app, pilot, "right", "ctrl+s", "enter")
        assert "exists" in str(app.screen.query_one("#problem").render())
        await press(app, pilot, "escape")
        saved = tmp_path / f"edited_{seen.id[:8]}.py"
        assert tunables_of(saved.read_text())[0] == changed
        lint(saved.read_text())

    drive(recorded, NARROW, steps)


def test_problems_are_told_with_lines_while_the_source_is_typed(recorded):
    async def steps(app, pilot):
        await press(app, pilot, "7", "i", *"import os", "enter")
        pane = app.pane
        assert pane.query_one(Editor).text.startswith("import os\n")
        assert "line 1: import of os is not allowed" in text(pane.query_one("#told"))
        await press(app, pilot, "escape", "ctrl+r")
        assert pane._trial is None, "it is not tried"
        pane.query_one("#told").focus()
        await press(app, pilot, "enter")
        assert app.focused is pane.query_one(Editor)
        assert pane.query_one(Editor).cursor_location == (0, 0)
        await press(app, pilot, "escape", "r")
        assert "import os" not in pane.query_one(Editor).text
        assert "as it ran" in text(pane.query_one("#told"))

    drive(recorded, WIDE, steps)


def test_a_trial_is_cancelled_with_its_process_and_drafts_are_kept(recorded, fake):
    told = fake("time.sleep(60)")

    async def steps(app, pilot):
        await press(app, pilot, "7", "i", *"#m", "enter", "escape")
        await pilot.press("ctrl+r")
        await until(pilot, lambda: _pid(told))
        pid = _pid(told)
        assert alive(pid)
        assert "starting the evaluation" in text(app.pane.query_one("#told"))
        await pilot.press("ctrl+t")
        await until(pilot, lambda: not alive(pid))
        await until(pilot, lambda: app.pane._trial is None)
        seen = app.shown.policy
        app.pane.post_message(Pane.Look(policy=recorded.full))
        await settle(app, pilot)
        assert "#m" not in app.pane.query_one(Editor).text
        app.pane.post_message(Pane.Look(policy=seen))
        await settle(app, pilot)
        assert app.pane.query_one(Editor).text.startswith("#m\n")

    drive(recorded, NARROW, steps)


def _pid(told):
    try:
        return told()["pid"]
    except (OSError, ValueError):
        return None


def test_what_cannot_be_edited_or_tried_says_so(recorded, copy):
    async def steps(app, pilot):
        editor = next(s for s in app.shown.run.ran() if s.spec.kind == "editor")
        app.pane.post_message(Pane.Look(policy=editor, tab="edit"))
        await settle(app, pilot)
        assert "no program" in text(app.pane.query_one("#told"))
        await press(app, pilot, "i", "x")
        assert "x" not in app.pane.query_one(Editor).text[:1]

    drive(recorded, NARROW, steps)
    run = Run(copy)
    run.config = type("Traces", (), {"traces": ("somewhere",)})()

    async def no_tasks(app, pilot):
        await press(app, pilot, "7", "ctrl+r")
        assert app.pane._trial is None

    drive(run, NARROW, no_tasks)


def test_problems_carry_their_lines():
    source = (
        "from akv_rsi.policies.dsl import Context\n\n\ndef policy(ctx):\n    open('x')\n    hm\n"
    )
    assert [line for line, _ in problems_of(source)] == [5, 6]
    assert problems_of("def policy(:")[0][0] == 1
    assert Draft("id", "label", "a").unsaved is False


@pytest.mark.slow
def test_a_trial_for_real(recorded):
    best, heard = recorded.best, []
    source = redeclare(best.spec.source, best.candidate.values)
    trial = asyncio.run(
        attempt(recorded, source, source, "train", 3, lambda *done: heard.append(done))
    )
    assert trial.n == 3
    assert trial.accuracy.difference == (0, 0, 0)
    assert heard[-1] == (6, 6), "keeping everything and one policy: both are the same"
    episodes = recorded.best.episodes["train"]
    ours = [e.success for task, e in episodes.items() if task.seed < 1]
    assert trial.contenders[1].accuracy.estimate == pytest.approx(sum(ours) / len(ours))
