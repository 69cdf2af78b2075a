"""Sets of tokens as lists of half-open ranges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from akv_rsi.types import Range


def merge(ranges: Iterable[Range]) -> list[Range]:
    """Their union: ascending, disjoint, not even touching, none empty.

    >>> merge([(4, 6), (0, 2), (2, 3), (7, 7)])
    [(0, 3), (4, 6)]
    """
    out: list[Range] = []
    for start, end in sorted(r for r in ranges if r[0] < r[1]):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out


def intersect(left: Sequence[Range], right: Sequence[Range]) -> list[Range]:
    """What two merged lists have in common.

    >>> intersect([(0, 5), (7, 9)], [(3, 8)])
    [(3, 5), (7, 8)]
    """
    if not left or not right:
        return []
    out, i, j = [], 0, 0
    while i < len(left) and j < len(right):
        start, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if start < end:
            out.append((start, end))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return out


def subtract(left: Sequence[Range], right: Sequence[Range]) -> list[Range]:
    """What the merged list ``left`` has and ``right`` has not.

    >>> subtract([(0, 9)], [(2, 3), (5, 20)])
    [(0, 2), (3, 5)]
    """
    if not left or not right:
        return list(left)
    gaps, at = [], left[0][0]
    for start, end in right:
        if start > at:
            gaps.append((at, start))
        at = max(at, end)
    gaps.append((at, max(at, left[-1][1])))
    return intersect(left, merge(gaps))
