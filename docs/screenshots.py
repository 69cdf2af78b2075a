"""Makes the screenshots of docs/inspect.md: `python docs/screenshots.py RUN`. Needs chromium."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from akv_rsi.insight.run import Run
from akv_rsi.pages.report import page
from akv_rsi.tui.app import Inspector

IMAGES = Path(__file__).parent / "images"
# Name: size of the terminal, keys, whether light.
SCREENS = {
    "archive": ((160, 44), "", False),
    "policy": ((160, 48), "2", False),
    "map": ((160, 44), "3 x x x", False),
    "map-small": ((80, 24), "3 x x x x", True),
    "trajectory": ((120, 30), "4 d", False),
    "tree": ((120, 30), "5 down down down", False),
    "live": ((160, 40), "6", False),
    "edit": ((160, 40), "7 left ctrl+r", False),
}


async def screen(run: Run, size: tuple[int, int], keys: str, light: bool) -> str:
    """The screen after ``keys`` as SVG."""
    app = Inspector(run)
    async with app.run_test(size=size) as pilot:
        for key in ["", *(["t"] if light else []), *keys.split(), ""]:
            if key:
                await pilot.press(key)
            await app.workers.wait_for_complete()
            await pilot.pause(1.0)
        return app.export_screenshot()


def shoot(source: Path, target: Path, width: int, height: int) -> None:
    """Chromium's picture of a file."""
    subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         f"--window-size={width},{height}", f"--screenshot={target}", source.as_uri()],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip


def main() -> None:
    """All of them."""
    run = Run(Path(sys.argv[1]))
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, (size, keys, light) in SCREENS.items():
            drawn = asyncio.run(screen(run, size, keys, light))
            box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn)
            assert box is not None
            source = Path(folder) / f"{name}.svg"
            source.write_text(drawn)
            shoot(source, IMAGES / f"{name}.png", *(int(float(edge)) + 1 for edge in box.groups()))
        report = Path(folder) / "report.html"
        report.write_text(page(run))
        shoot(report, IMAGES / "report.png", 1000, 1500)
        shoot(report, IMAGES / "report-phone.png", 500, 1000)


if __name__ == "__main__":
    main()
