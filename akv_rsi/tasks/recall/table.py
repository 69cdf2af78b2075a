"""The result of a recall measurement: each variant against keeping everything, with intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from akv_rsi.tasks import stats
from akv_rsi.tasks.recall.measure import Cell, Floats

FULL = "full"


def rows(cells: Mapping[str, Cell]) -> list[dict[str, Any]]:
    """A row for each variant; ``full`` must be among them.

    ``gap`` is the paired difference of the gold answer's log-probability to keeping everything, in
    nats. Intervals resample records, the two facts of one together.
    """
    return [_row(name, cell, cells[FULL]) for name, cell in cells.items()]


def _row(name: str, cell: Cell, full: Cell) -> dict[str, Any]:
    noted, other = cell.noted == 1, cell.noted == 0
    about: dict[str, Any] = {"variant": name, "questions": int(noted.sum())}
    about |= {"attended": cell.attended, "prefilled": cell.prefilled}
    about["exact"] = _mean(cell.exact, cell, noted)
    about["likely"] = _mean(cell.likely, cell, noted)
    about["gap"] = _mean(cell.likely - full.likely, cell, noted)
    about["unnoted"] = {"questions": int(other.sum())}
    if other.any():
        about["unnoted"] |= {
            "exact": _mean(cell.exact, cell, other),
            "gap": _mean(cell.likely - full.likely, cell, other),
        }
    return about


def _mean(values: Floats, cell: Cell, which: Any) -> dict[str, float]:
    """The mean over questions, records resampled."""
    records, inverse = np.unique(cell.record[which], return_inverse=True)
    sums = np.bincount(inverse, values[which], len(records))
    counts = np.bincount(inverse, minlength=len(records)).astype(float)
    interval = stats.ratio(sums.tolist(), counts.tolist())
    return interval._asdict()
