"""`akv-rsi report`: a finished run as one page. It reads the store and nothing else."""

from __future__ import annotations

from pathlib import Path

from akv_rsi.cli.output import print_json
from akv_rsi.errors import StoreError
from akv_rsi.insight.run import Run
from akv_rsi.pages.report import page


def report(run: Path, *, output: Path | None = None, json: bool = False) -> None:
    """Write a finished run's report as one HTML file that works offline.

    Args:
        run: The run's directory.
        output: The file to write. Default: report.html in the run's directory.
        json: Print where it was written as JSON.
    """
    target = output or run / "report.html"
    text = page(Run(run))
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{target} cannot be written: {error.strerror}") from error
    print_json({"path": str(target)}) if json else print(f"wrote {target}")
