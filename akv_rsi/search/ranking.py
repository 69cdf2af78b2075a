"""Which of the screened candidates come first: to be run, and to be bred from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from akv_rsi.search.screen import PASSED_OVER, SAFE, Screened


def by_promise(screened: Sequence[Screened], target: float) -> list[Screened]:
    """Those that can be run, or could with other numbers; the most promising first.

    Of equals, who keeps more comes first: less can be missing on other tasks.
    """

    def rank(one: Screened) -> tuple[float, float, str]:
        return (one.promise(target), min(one.ratio, target), one.candidate.id)

    return sorted((one for one in screened if one.fingerprint), key=rank, reverse=True)


def cheapest_safe(screened: Sequence[Screened], idle: str) -> list[Screened]:
    """Those that lose next to nothing, whatever they save, the cheapest first; not the ``idle``."""
    safe = [one for one in screened if one.safety >= SAFE and one.fingerprint != idle]
    return sorted(safe, key=lambda one: (one.ratio, one.candidate.id))


def distinct(screened: Sequence[Screened]) -> list[Screened]:
    """The screened in order, but of those that decide alike only one, the shortest."""
    shortest: dict[str, Screened] = {}
    for one in screened:
        known = shortest.setdefault(one.fingerprint, one)
        if len(one.candidate.spec.source) < len(known.candidate.spec.source):
            shortest[one.fingerprint] = one
    return list(shortest.values())


def pick(screened: Sequence[Screened], target: float, count: int) -> list[Screened]:
    """All of them; of those that can be run, all but ``count`` are now passed over.

    A structure is run once, and so is a way to decide.
    """
    unique = list({one.candidate.id: one for one in screened}.values())
    chosen: dict[str, Screened] = {}
    seen: set[str] = set()
    for one in by_promise(unique, target):
        if one.fate or one.candidate.structure in chosen or one.fingerprint in seen:
            continue
        if len(chosen) < count:
            chosen[one.candidate.structure] = one
            seen.add(one.fingerprint)
    run = list(chosen.values())
    return [replace(s, fate=PASSED_OVER) if not s.fate and s not in run else s for s in unique]
