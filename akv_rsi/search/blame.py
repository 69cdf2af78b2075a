"""Which lost span made a call go wrong: a search over what to restore, as a coroutine.

It asks for batches of `Variant`s and is told which of them cured the call, that is, made the agent
say what was right. It knows nothing of engines, so it can be tested on made-up worlds.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Literal

from akv_rsi.search.fork import Variant
from akv_rsi.types import Range

Cause = Literal["dropped", "position", "stale", "other", "unrepeatable"]
# Spans that are tried alone before it is known that none of these will do.
FIRST = 8


@dataclass(frozen=True, slots=True)
class Suspect:
    """A segment of which ``ranges`` were hidden from the call."""

    id: int
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Blame:
    """Why a call went wrong.

    ``dropped``: restoring the ``culprits`` cures it, and with one of them less it does not; each of
    the ``others`` would have done alone as well. ``position``: closing the gaps cures it.
    ``stale``: recomputing what is visible does. ``other``: nothing that was tried does.
    ``unrepeatable``: the very same call now goes well. The ``innocent`` do not cure it alone.
    """

    cause: Cause
    culprits: tuple[int, ...] = ()
    others: tuple[int, ...] = ()
    innocent: tuple[int, ...] = ()


Batch = list[Variant]
Inquiry = Generator[Batch, list[bool], Blame]
Suspects = Sequence[Suspect]


def inquire(suspects: Suspects) -> Inquiry:
    """Tries the suspects alone, in their order, then groups of them."""
    whole = [_restoring(suspects)] if suspects else []
    first = [Variant(), Variant(repos=True), *whole, *map(_alone, suspects[:FIRST])]
    wrong, closed, *cured = yield first
    if wrong:
        return Blame("unrepeatable")
    if closed:
        return Blame("position")
    alone = cured[len(whole) :]
    if not any(alone) and len(suspects) > FIRST:
        alone += yield [_alone(suspect) for suspect in suspects[FIRST:]]
    told = list(zip(suspects, alone, strict=False))
    innocent = tuple(suspect.id for suspect, good in told if not good)
    if found := [suspect.id for suspect, good in told if good]:
        return Blame("dropped", (found[0],), tuple(found[1:]), innocent)
    group = suspects if any(cured[: len(whole)]) else (yield from _some(suspects))
    if group:
        least = yield from _least([], group)
        return Blame("dropped", tuple(s.id for s in least), (), innocent)
    (stale,) = yield [Variant(repos=True, refresh=True)]
    return Blame("stale" if stale else "other", (), (), innocent)


def _some(suspects: Suspects) -> Generator[Batch, list[bool], Suspects]:
    """A half or a quarter of them that cures, where all together do not: they may be too many."""
    count = len(suspects)
    sizes = [size for size in {-(-count // 2), -(-count // 4)} if 1 < size < count]
    groups = [suspects[i : i + size] for size in sorted(sizes) for i in range(0, count, size)]
    if not groups:
        return ()
    cured = yield [_restoring(group) for group in groups]
    return next((group for group, good in zip(groups, cured, strict=True) if good), ())


def _least(fixed: list[Suspect], rest: Suspects) -> Generator[Batch, list[bool], list[Suspect]]:
    """As few of ``rest`` as cure together with ``fixed``, by halving; all of them do."""
    if len(rest) == 1:
        return list(rest)
    left, right = rest[: len(rest) // 2], rest[len(rest) // 2 :]
    left_cures, right_cures = yield [_restoring([*fixed, *half]) for half in (left, right)]
    if left_cures:
        return (yield from _least(fixed, left))
    if right_cures:
        return (yield from _least(fixed, right))
    of_right = yield from _least([*fixed, *left], right)
    of_left = yield from _least([*fixed, *of_right], left)
    return [*of_left, *of_right]


def _restoring(suspects: Suspects) -> Variant:
    return Variant(tuple(span for suspect in suspects for span in suspect.ranges))


def _alone(suspect: Suspect) -> Variant:
    return Variant(suspect.ranges)
