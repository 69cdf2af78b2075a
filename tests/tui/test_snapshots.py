"""Every screen as it was seen and accepted, narrow and wide; some in their colours too.

After a wanted change look at each, then:

    pytest tests/tui/test_snapshots.py -m "slow or not slow" --snapshot-update
"""

import asyncio
import time

import pytest
from piloting import NARROW, WIDE, settle

from akv_rsi.tui.app import PANES, Inspector
from akv_rsi.tui.help import Help
from akv_rsi.tui.panes.archive import ArchivePane

KEYS = {"map": ["x", "x"], "trajectory": ["d"], "tree": ["down", "down"]}


@pytest.fixture(autouse=True)
def _utc(monkeypatch):
    """The log tells the time of day."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


async def go_to(pilot, name):
    """To a screen, until nothing more comes."""
    app = pilot.app
    for key in [str(list(PANES).index(name) + 1), *KEYS.get(name, ())]:
        await pilot.press(key)
        await settle(app, pilot)
    if isinstance(app.pane, ArchivePane):
        app.pane._plot()
    await settle(app, pilot)


def plain(app):
    """The characters on the screen."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(NARROW, id="narrow"),
        pytest.param(WIDE, id="wide", marks=pytest.mark.slow),
    ],
)
def test_screens(recorded, snapshot, size):
    """And its help behind each of them."""
    seen = {}

    async def inside():
        app = Inspector(recorded)
        app.animation_level = "none"
        async with app.run_test(size=size) as pilot:
            for name in PANES:
                await go_to(pilot, name)
                assert type(app.pane).__name__ == PANES[name][1].partition(":")[2]
                seen[name] = plain(app)
                await pilot.press("question_mark")
                assert isinstance(app.screen, Help)
                await pilot.press("escape")

    asyncio.run(inside())
    for name, text in seen.items():
        assert text == snapshot(name=name), name


@pytest.mark.parametrize("light", [False, True], ids=["dark", "light"])
def test_the_map_in_its_colours(recorded, snap_compare, light):
    async def steps(pilot):
        pilot.app.animation_level = "none"
        await go_to(pilot, "map")
        if light:
            await pilot.press("t")
            await settle(pilot.app, pilot)

    assert snap_compare(Inspector(recorded), run_before=steps, terminal_size=NARROW)
