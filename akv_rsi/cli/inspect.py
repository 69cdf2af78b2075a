"""`akv-rsi inspect`: looks at a run in the terminal. It reads the store and nothing else."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from akv_rsi.errors import ConfigError, StoreError
from akv_rsi.insight.progress import is_held
from akv_rsi.insight.run import Run
from akv_rsi.search.store import owner

INTERRUPTED = 130


def inspect(run: Path, *, follow: bool = False, json: bool = False) -> None:
    """Look at a run: its candidates, their source, what they did to the cache, and why.

    Press ? inside for help on the screen in front.

    Args:
        run: The run's directory; it may still be running.
        follow: Show what is added while the search runs.
        json: Print what its first screen shows as JSON, and no screen.
    """
    if json and follow:
        raise ConfigError("--json and --follow exclude each other: JSON is printed once")
    found = Run(run)
    if json:
        from akv_rsi.cli.output import print_json  # NumPy comes with it
        from akv_rsi.insight.listing import listing

        print_json(listing(found))
        return
    need_terminal()
    _open(found, follow)


def watch(path: Path, workers: int | None) -> None:
    """Runs the search in ``path`` in a process of its own and follows it; it outlives the watcher.

    `StoreError` with the search's last line when it failed.
    """
    command = [sys.executable, "-c", "from akv_rsi.cli import main; main()"]
    command += ["search", "--resume", str(path)]
    command += [] if workers is None else ["--workers", str(workers)]
    log = path / "search.log"
    with log.open("w") as out:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    print(f"starting the search in {path} ...", flush=True)
    while child.poll() is None and owner(path) is None:
        time.sleep(0.05)
    if not child.returncode:
        _open(Run(path), follow=True)
    if child.poll() is None:
        how = "is paused (Space on 6 Live lets it go on)" if is_held(child.pid) else "goes on"
        print(f"the search {how}; look again with: akv-rsi inspect {path} --follow")
    elif child.returncode == INTERRUPTED:
        print(f"the search is stopped; go on with: akv-rsi search --resume {path}")
    elif child.returncode:
        last = (log.read_text().strip().splitlines() or ["it said nothing"])[-1]
        raise StoreError(f"the search ended early: {last} (all it said is in {log})")


def need_terminal() -> None:
    """`ConfigError` where there is none to draw on."""
    if not sys.stdout.isatty():
        raise ConfigError(
            "inspect needs a terminal; --json prints its table, `akv-rsi report` writes a page"
        )


def _open(run: Run, follow: bool) -> None:
    from akv_rsi.tui.app import Inspector

    Inspector(run, follow).run()
