"""Looking at a run stays light: no torch in the process, and a large run is there at once."""

import json
import subprocess
import sys

import pytest
from conftest import RECORDED

from akv_rsi.cli import run as command

# Every screen, then the report: all in one process of its own.
EVERYTHING = """
import sys
from pathlib import Path
import akv_rsi.cli.inspect, akv_rsi.cli
from akv_rsi.insight.run import Run
from akv_rsi.tui.app import PANES, Inspector

async def visit(pilot):
    for number in range(1, len(PANES) + 1):
        await pilot.press(str(number))
        await pilot.app.workers.wait_for_complete()
        assert pilot.app.pane is not None
    pilot.app.exit("seen")

assert Inspector(Run(Path(sys.argv[1]))).run(headless=True, auto_pilot=visit) == "seen"
assert akv_rsi.cli.run(["report", sys.argv[1], "--output", sys.argv[2]]) == 0
print(sorted(sys.modules))
"""
OPEN = """
import time
import json, sys
from pathlib import Path
import akv_rsi.cli
from akv_rsi.cli.inspect import Run
run = Run(Path(sys.argv[1]))
from akv_rsi.tui.app import Inspector
from akv_rsi.tui.lines import Lines

class Timed(Lines):
    def render_line(self, y):
        strip = super().render_line(y)
        if self.count > y == self.size.height - 1:
            app.exit(time.process_time())
        return strip

import akv_rsi.tui.table
akv_rsi.tui.table.Lines = Timed
app = Inspector(run)
print(json.dumps([len(run.policies), app.run(headless=True, size=(200, 60))]))
"""


def python(program, *arguments):
    """What a program in a process of its own prints."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_neither_screens_nor_report_load_torch_or_the_engine(tmp_path):
    loaded = python(EVERYTHING, RECORDED, tmp_path / "page.html")
    assert "'akv_rsi.tui.panes.live'" in loaded
    assert "'akv_rsi.pages.report'" in loaded
    for heavy in ("'torch'", "'transformers'", "'optuna'", "'akv_rsi.engine.pool'"):
        assert heavy not in loaded


def test_the_archive_is_told_as_json(recorded, capsys):
    assert command(["inspect", str(RECORDED), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["best"] == recorded.best.id
    assert told["state"] == "finished"
    rows = {row["id"]: row for row in told["policies"]}
    assert rows.keys() == recorded.policies.keys()
    test = rows[recorded.best.id]["splits"]["test"]
    assert test["n"] == 24
    assert test["accuracy"] == recorded.report.best.test.accuracy.estimate
    assert test["cost_ratio_ci"] == list(recorded.report.best.test.cost_ratio[1:])
    assert all(bool(row["splits"]) == (not row["fate"]) for row in told["policies"] if row["arm"])
    assert command(["inspect", str(RECORDED), "--json", "--follow"]) == 2


@pytest.mark.slow
def test_a_run_of_a_thousand_candidates_is_there_in_a_second():
    """Seconds of the processor, imports and all, until the rows of the table are drawn."""
    taken = []
    for _ in range(3):
        policies, seconds = json.loads(python(OPEN, RECORDED))
        taken.append(seconds)
    assert policies > 1000
    assert min(taken) <= 1.0, taken
