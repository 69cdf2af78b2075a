"""The best trade-offs among points."""

from __future__ import annotations

from collections.abc import Sequence


def pareto_front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of ``(cost, accuracy)`` points those that none beats in both, the cheapest first.

    >>> pareto_front([(0.5, 0.4), (0.6, 0.3), (0.7, 0.9)])
    [(0.5, 0.4), (0.7, 0.9)]
    """
    front: list[tuple[float, float]] = []
    for x, y in sorted(set(points), key=lambda p: (p[0], -p[1])):
        if not front or y > front[-1][1]:
            front.append((x, y))
    return front
