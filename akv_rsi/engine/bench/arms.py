"""Timing that a busy machine does not spoil: the arms take turns, and only ratios are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

# Runs one arm once; seconds.
Arm = Callable[[], float]


def take_turns(arms: Mapping[str, Arm], rounds: int) -> dict[str, list[float]]:
    """The seconds of every arm in each round, after a round that warms them up.

    The order is reversed every other round, so that a drift of the machine's speed cancels.
    """
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(rounds + 1):
        for name in list(arms)[:: 1 if number % 2 else -1]:
            taken = arms[name]()
            if number:
                seconds[name].append(taken)
    return seconds


def ratio(over: list[float], under: list[float]) -> dict[str, Any]:
    """The median of ``over / under`` round by round, with the smallest and largest."""
    each = [a / b for a, b in zip(over, under, strict=True)]
    return {
        "ratio": round(median(each), 3),
        "range": [round(min(each), 3), round(max(each), 3)],
        "rounds": len(each),
    }


def milliseconds(seconds: list[float]) -> float:
    """The median, in ms."""
    return round(1e3 * median(seconds), 3)
