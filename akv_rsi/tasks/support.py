"""Whether what an agent wrote could be known from what it saw: evidence without a model.

An agent copies identifiers (names, values, places) from earlier messages. One that occurs in
earlier messages, but in none that is visible, was lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from akv_rsi.policies.resident import identifiers_of
from akv_rsi.types import Range, Segment


def count_lost(
    segments: Sequence[Segment], visible: Sequence[Range], written: Iterable[Segment]
) -> int:
    """How many identifiers of ``written`` occur in ``segments``, but in no visible one.

    A segment counts as visible when all of it is; ``visible`` ranges are ascending and maximal.
    """
    words = {word for segment in written for word in _identifiers(segment.text)}
    lost: set[str] = set()
    for segment in segments:
        if held := words & _identifiers(segment.text):
            if any(low <= segment.start and segment.end <= high for low, high in visible):
                words -= held
                lost -= held
            else:
                lost |= held
    return len(lost)


@lru_cache(maxsize=65536)
def _identifiers(text: str) -> frozenset[str]:
    return frozenset(identifiers_of(text))
