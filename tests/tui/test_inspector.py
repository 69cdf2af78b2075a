"""The inspector driven by a pilot: every screen, narrow and wide; snapshots of some."""

import signal
import sqlite3
import subprocess
import sys

import pytest
from piloting import NARROW, WIDE, drive, press, settle, text, until

from akv_rsi.insight.cachemap import CacheMap, State
from akv_rsi.insight.compare import instructive
from akv_rsi.insight.progress import is_held
from akv_rsi.insight.run import Run
from akv_rsi.tui.app import PANES
from akv_rsi.tui.confirm import Confirm
from akv_rsi.tui.lines import Lines
from akv_rsi.tui.mapgrid import MapGrid
from akv_rsi.tui.pane import Pane
from akv_rsi.tui.pareto import Pareto
from akv_rsi.tui.picker import TaskPicker
from akv_rsi.tui.table import Table


def test_the_table_is_sorted_filtered_and_opened(recorded):
    async def steps(app, pilot):
        table = app.pane.query_one(Table)
        values = [recorded.standing(seen).accuracy for seen in table.rows]
        assert values == sorted(values, reverse=True)
        await press(app, pilot, "s", "s")
        ratios = [recorded.standing(seen).ratio for seen in table.rows]
        assert table.sort.startswith("95%") or ratios == sorted(ratios, reverse=True)
        everyone = len(table.rows)
        await press(app, pilot, "slash", *"truncate", "enter")
        assert {seen.spec.name for seen in table.rows} == {"truncate"}
        await press(app, pilot, "escape")
        assert len(table.rows) == everyone
        await press(app, pilot, "a")
        assert len(table.rows) == len(recorded.policies)
        await press(app, pilot, "home", "down", "enter")
        assert app.query_one("TabbedContent").active == "policy"
        assert app.shown.policy is table.rows[1]

    drive(recorded, NARROW, steps)


def test_narrow_screens_leave_columns_out_and_wide_ones_show_the_plot(recorded):
    async def narrow(app, pilot):
        assert not app.pane.query_one(Pareto).display
        await press(app, pilot, "p")
        assert app.pane.query_one(Pareto).display
        assert not app.pane.query_one(Table).display

    async def wide(app, pilot):
        assert app.pane.query_one(Pareto).display
        assert "from" in str(app.pane.query_one("Table > Static").render())

    drive(recorded, NARROW, narrow)
    drive(recorded, WIDE, wide)


def test_a_click_on_a_name_sorts_and_a_click_on_a_line_selects(recorded):
    async def steps(app, pilot):
        table = app.pane.query_one(Table)
        await pilot.click("Table > Static", offset=(2, 0))
        assert table.sort == "policy"
        await press(app, pilot, "home")
        await pilot.click(table.lines, offset=(4, 5))
        await settle(app, pilot)
        assert app.shown.policy is table.rows[5]

    drive(recorded, NARROW, steps)


def test_the_source_its_facts_and_a_diff(recorded):
    async def steps(app, pilot):
        await press(app, pilot, "2")
        assert "def policy(ctx: Context)" in text(app.pane.query_one("#source"))
        facts = text(app.pane.query_one("#facts"))
        assert "Scores, with 95% intervals" in facts
        assert "Parity: alike" in facts
        await press(app, pilot, "d")
        shown = text(app.pane.query_one("#source"))
        assert "->" in shown
        assert "\n+" in shown
        source = app.pane.query_one("#source")
        strips = [source.render_line(y) for y in range(2, source.size.height)]
        added = [s.style.color for strip in strips for s in strip if s.text.startswith("+")]
        assert {colour.name for colour in added} == {"green"}

    drive(recorded, WIDE, steps)


def test_the_map_tells_why_a_segment_was_dropped(recorded):
    async def steps(app, pilot):
        await press(app, pilot, "3")
        await until(pilot, lambda: app.pane._map)
        await press(app, pilot, "x")
        grid = app.pane.query_one(MapGrid)
        assert grid.map.cells[grid.row][grid.column].state is State.DROPPED
        await until(pilot, lambda: isinstance(app.pane._rules, list))
        story = str(app.pane.query_one("#story").render())
        assert f"dropped before call {grid.row} by line" in story
        assert grid.map.segments[grid.column].text[:20] in story
        task = app.shown.task
        await press(app, pilot, "n")
        assert app.shown.task != task
        await press(app, pilot, "end", "space")
        assert grid.playing
        assert grid.row < 5, "it begins anew"
        await press(app, pilot, "space", "o")
        assert isinstance(app.screen, TaskPicker)
        await press(app, pilot, "down", "enter")
        assert not isinstance(app.screen, TaskPicker)

    drive(recorded, NARROW, steps)


def test_an_edited_text_and_a_policy_without_conversations_are_told(recorded):
    async def steps(app, pilot):
        await press(app, pilot, "3")
        await until(pilot, lambda: app.pane._map)
        app.pane._loaded(CacheMap(app.pane._map.trajectory, (), ()), None)
        assert "edits the text itself" in str(app.pane.query_one("#story").render())
        screened = next(s for s in recorded.policies.values() if s.fate)
        app.pane.post_message(Pane.Look(policy=screened))
        await settle(app, pilot)
        assert "No conversation of" in str(app.pane.query_one("#story").render())
        await press(app, pilot, "4")
        assert "No conversation of" in text(app.pane.query_one(Lines))

    drive(recorded, NARROW, steps)


def test_two_conversations_stand_side_by_side(recorded):
    win = next(t for t in instructive(recorded, recorded.best) if t.kind == "win")

    async def steps(app, pilot):
        app.pane.post_message(Pane.Look(task=win.task, tab="trajectory"))
        await until(pilot, lambda: getattr(app.pane, "_pairs", None))
        await press(app, pilot, "d")
        await until(pilot, lambda: "here they part" in text(app.pane.query_one(Lines)))
        names = str(app.pane.query_one("#names").render())
        assert "solved" in names
        assert "FAILED" in names

    drive(recorded, NARROW, steps)


def test_a_policy_is_exported_from_any_screen(recorded, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    async def steps(app, pilot):
        await press(app, pilot, "5", "e", "enter")

    drive(recorded, NARROW, steps)
    (written,) = tmp_path.iterdir()
    assert f"Policy id: {recorded.best.id}" in written.read_text()


def test_the_store_is_followed_and_a_failure_is_told(copy):
    """Half a run, then the rest; then a damaged one."""
    whole = (copy / "run.sqlite").read_bytes()
    database = sqlite3.connect(copy / "run.sqlite")
    database.execute("DELETE FROM events WHERE seq >= 20")
    database.commit()
    database.close()

    async def steps(app, pilot):
        assert app.pane.query_one("#ledger") is not None
        assert "stopped; 20 steps" in str(app.pane.query_one("#ledger").render())
        (copy / "run.sqlite").write_bytes(whole)
        await until(pilot, lambda: "finished" in str(app.pane.query_one("#ledger").render()))
        await press(app, pilot, "space")
        assert not app.pane.paused, "nobody writes it"
        (copy / "run.sqlite").write_bytes(b"nonsense" * 1000)
        await until(pilot, lambda: "damaged" in " ".join(n.message for n in app._notifications))
        assert app.is_running

    drive(Run(copy), NARROW, steps, follow=True)


WRITER = """
import signal, sys, time
if sys.argv[2] == "deaf":  # as what a script starts in the background
    signal.signal(signal.SIGINT, signal.SIG_IGN)
else:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
from pathlib import Path
from akv_rsi.search.store import Store
with Store.open(Path(sys.argv[1])):
    print("writing", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize(("hearing", "end"), [("keen", signal.SIGINT), ("deaf", signal.SIGTERM)])
def test_a_running_search_is_paused_and_stopped(copy, hearing, end):
    """The process that writes the run, in place of a search."""
    database = sqlite3.connect(copy / "run.sqlite")
    database.execute("DELETE FROM events WHERE seq >= 20")
    database.commit()
    database.close()
    command = [sys.executable, "-c", WRITER, str(copy), hearing]

    async def steps(app, pilot):
        def told(words):
            return words in str(app.pane.query_one("#ledger").render())

        await until(pilot, lambda: told("running; 20 steps"))
        await press(app, pilot, "space")
        await until(pilot, lambda: told("paused; 20 steps"))
        assert is_held(writer.pid)
        await press(app, pilot, "q")
        assert isinstance(app.screen, Confirm), "it would stay paused"
        await press(app, pilot, "n", "space")
        await until(pilot, lambda: told("running; 20 steps"))
        await press(app, pilot, "x", "n")
        assert writer.poll() is None
        await press(app, pilot, "x", "y")
        await until(pilot, lambda: told("stopped; 20 steps"))
        assert told("--resume")
        assert writer.wait() == -end

    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as writer:
        try:
            assert writer.stdout.readline() == "writing\n"
            drive(Run(copy), NARROW, steps, follow=True)
        finally:
            writer.kill()


def test_light_and_dark(recorded):
    async def steps(app, pilot):
        assert app.current_theme.dark
        await press(app, pilot, "t")
        assert not app.current_theme.dark

    drive(recorded, NARROW, steps)


def test_a_run_with_nothing_in_it_yet_says_so(copy):
    (copy / "run.sqlite").unlink()

    async def steps(app, pilot):
        for number in range(1, len(PANES) + 1):
            await press(app, pilot, str(number))
        await press(app, pilot, "1")
        assert "no policy has been run yet" in text(app.pane.query_one(Lines))

    drive(Run(copy), NARROW, steps)
