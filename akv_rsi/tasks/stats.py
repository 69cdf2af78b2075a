"""Intervals and tests for paired results: every policy meets the same tasks.

Bootstrap intervals resample tasks, both policies together, so what makes a task hard or long
cancels out. All of it is deterministic in its seed. NumPy is loaded by the first interval, since
whoever only looks at a run should not wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
Verdict = Literal["better", "worse", "undecided"]
RESAMPLES = 4000
# Resampling indices are drawn in blocks, so that thousands of tasks need no large table.
_BLOCK = 500


class Interval(NamedTuple):
    """An estimate between its confidence limits."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two policies on the same tasks: accuracy difference, and whether it is beyond its noise.

    ``p_value`` is that of the exact two-sided sign test over the tasks on which they differ.
    """

    difference: Interval
    p_value: float
    verdict: Verdict


def accuracy(successes: Sequence[float], confidence: float = 0.95) -> Interval:
    """The share of successes with Wilson's score interval, which is sound at 0 and 1 too.

    Values between 0 and 1 are shares themselves: they vary less, so the interval is wide enough.

    >>> [round(x, 3) for x in accuracy([True] * 9 + [False])]
    [0.9, 0.596, 0.982]
    """
    n = len(successes)
    if not n:
        raise ValueError("accuracy of no tasks")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = sum(successes) / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2) / (1 + z * z / n)
    # Rounding must not put the limits of 0 and 1 on their wrong sides.
    return Interval(share, min(share, max(0.0, centre - half)), max(share, min(1.0, centre + half)))


def difference(
    ours: Sequence[float], theirs: Sequence[float], seed: int = 0, confidence: float = 0.95
) -> Interval:
    """The mean of ``ours - theirs``, task by task, with its bootstrap interval."""
    gaps = _paired(ours, theirs)
    means = _resampled(gaps[0] - gaps[1], seed)[0] / gaps.shape[1]
    return Interval(float((gaps[0] - gaps[1]).mean()), *_limits(means, confidence))


def ratio(
    ours: Sequence[float], theirs: Sequence[float], seed: int = 0, confidence: float = 0.95
) -> Interval:
    """``sum(ours) / sum(theirs)`` with its bootstrap interval; ``theirs`` must be positive."""
    pairs = _paired(ours, theirs)
    if not (pairs[1] > 0).all():
        raise ValueError("a ratio of sums needs positive denominators")
    above, below = _resampled(pairs, seed)
    return Interval(float(pairs[0].sum() / pairs[1].sum()), *_limits(above / below, confidence))


def sign_test(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The exact two-sided p-value (McNemar's) that the tasks they differ on fall either way.

    >>> sign_test([True] * 6, [False] * 6)
    0.03125
    """
    wins = sum(a > b for a, b in zip(ours, theirs, strict=True))
    losses = sum(a < b for a, b in zip(ours, theirs, strict=True))
    n = wins + losses
    tail = sum(math.comb(n, k) for k in range(min(wins, losses) + 1))
    return min(1.0, float(2 * tail / 2**n))


def compare(
    ours: Sequence[float], theirs: Sequence[float], seed: int = 0, confidence: float = 0.95
) -> Comparison:
    """Whether ``ours`` is more accurate, task by task; a policy against itself is undecided.

    A verdict needs both: an interval that excludes 0, and a sign test that agrees. The bootstrap
    alone is too sure of itself when few tasks differ.
    """
    gap = difference(ours, theirs, seed, confidence)
    p_value = sign_test(ours, theirs)
    verdict: Verdict = "undecided"
    if p_value <= 1 - confidence:
        verdict = "better" if gap.low > 0 else "worse" if gap.high < 0 else "undecided"
    return Comparison(gap, p_value, verdict)


def _paired(ours: Sequence[float], theirs: Sequence[float]) -> Floats:
    """Both rows, shape ``[2, tasks]``."""
    if len(ours) != len(theirs) or len(ours) == 0:
        raise ValueError(f"paired results need the same tasks: {len(ours)} and {len(theirs)} given")
    import numpy as np

    return np.array([ours, theirs], dtype=np.float64)


def _resampled(rows: Floats, seed: int) -> Floats:
    """Sums over resampled tasks, shape ``[rows, RESAMPLES]``; one draw serves all rows."""
    import numpy as np

    rows = np.atleast_2d(rows)
    rng = np.random.default_rng(seed)
    tasks = rows.shape[1]
    blocks = []
    for _ in range(RESAMPLES // _BLOCK):
        picks = rng.integers(0, tasks, (_BLOCK, tasks))
        blocks.append(rows[:, picks].sum(axis=2))
    return np.concatenate(blocks, axis=1)


def _limits(samples: Floats, confidence: float) -> tuple[float, float]:
    import numpy as np

    tail = (1 - confidence) / 2
    low, high = np.quantile(samples, [tail, 1 - tail])
    return float(low), float(high)
