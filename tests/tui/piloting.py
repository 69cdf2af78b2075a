"""What the tests of the inspector share: an app driven by a pilot."""

import asyncio

from akv_rsi.tui.app import Inspector

NARROW, WIDE = (80, 24), (200, 60)


def drive(run, size, steps, follow=False):
    """Runs ``steps(app, pilot)`` inside the app."""

    async def inside():
        app = Inspector(run, follow)
        async with app.run_test(size=size) as pilot:
            await settle(app, pilot)
            await steps(app, pilot)

    asyncio.run(inside())


async def settle(app, pilot):
    await app.workers.wait_for_complete()
    await pilot.pause()


async def press(app, pilot, *keys):
    for key in keys:
        await pilot.press(key)
        await settle(app, pilot)


async def until(pilot, condition):
    """Waits for what a worker brings."""
    for _ in range(1000):
        if condition():
            return
        await pilot.pause(0.01)
    raise AssertionError("it never came")


def text(widget):
    """What a list of lines shows."""
    rows = (widget.render_line(y) for y in range(widget.size.height))
    return "\n".join("".join(segment.text for segment in strip) for strip in rows)
