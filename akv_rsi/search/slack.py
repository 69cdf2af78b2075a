"""What a policy saves more than it has to, given back: numbers that drop less, within the budget.

Recorded trajectories tell what is lost, not what is confusing: of two policies that lose nothing
there the one that keeps more is the safer one for an agent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from akv_rsi.policies.spec import TunableValue
from akv_rsi.policies.tunables import Tunable
from akv_rsi.search.candidate import Candidate
from akv_rsi.search.screen import DUPLICATE, Screen, Screened, tunables

RELAX = "relax"


def relaxed(screen: Screen, candidate: Candidate, target: float) -> Screened:
    """``candidate`` in numbers that keep as much as costs ``target`` on the recordings.

    Numbers near the lower end of their range go first: what is dropped youngest is missed most. The
    fate says duplicate when none can be moved.
    """
    best = screen.check(candidate)
    for number in sorted(tunables(candidate.spec), key=lambda t: _place(t, candidate)):
        best = _moved(screen, best, number, target)
    made = replace(best.candidate, operator=RELAX, parents=(candidate.id,))
    return replace(best, candidate=made, fate=DUPLICATE if made.id == candidate.id else best.fate)


def _moved(screen: Screen, best: Screened, number: Tunable, target: float) -> Screened:
    """``best`` with one number where it keeps more, as far out as is paid for."""
    for end in (number.high, number.low):
        for value in _towards(number, best.candidate.values[number.name], end):
            values = {**best.candidate.values, number.name: value}
            tried = screen.check(best.candidate.with_values(values))
            if not tried.fingerprint or tried.ratio <= best.ratio:
                break  # at fault, or it keeps no more in this direction
            safe = tried.safety >= best.safety and tried.support >= best.support
            if safe and tried.ratio <= target:
                return tried
    return best


def _towards(number: Tunable, value: TunableValue, end: float) -> Iterator[TunableValue]:
    """The end of a range, then half of the way there, and a quarter."""
    for share in (1.0, 0.5, 0.25):
        place = value + (end - value) * share
        moved = round(place) if number.integer else place
        if moved != value:
            yield moved


def _place(number: Tunable, candidate: Candidate) -> float:
    """Where in its range a number lies: 0 at the lower end, 1 at the upper."""
    width = number.high - number.low
    return (candidate.values.get(number.name, number.default) - number.low) / width if width else 1
