"""`akv-rsi inspect`: looks at a run in the terminal. It reads the store and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

from akv_rsi.errors import ConfigError
from akv_rsi.insight.run import Run


def inspect(run: Path, *, follow: bool = False) -> None:
    """Look at a run: its candidates, their source, what they did to the cache, and why.

    Press ? inside for help on the screen in front.

    Args:
        run: The run's directory; it may still be running.
        follow: Show what is added while the search runs.
    """
    found = Run(run)
    if not sys.stdout.isatty():
        raise ConfigError("inspect needs a terminal; `akv-rsi report` writes a page instead")
    from akv_rsi.tui.app import Inspector

    Inspector(found, follow).run()
