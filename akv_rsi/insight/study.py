"""What a tunable does: every number that was tried for one structure, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from akv_rsi.errors import LintError
from akv_rsi.insight.run import Run
from akv_rsi.insight.seen import Seen
from akv_rsi.policies import library
from akv_rsi.policies.spec import TunableValue
from akv_rsi.policies.tunables import Tunable, tunables_of


@dataclass(frozen=True, slots=True)
class Tried:
    """One value of a tunable: of how many policies of its structure it was part.

    ``ratio`` and ``support`` are means over recorded conversations (the screen); ``accuracy`` is
    the mean over the episodes that were run, None where none was.
    """

    value: TunableValue
    policies: int
    ratio: float
    support: float
    accuracy: float | None
    episodes: int


def declared(seen: Seen) -> tuple[Tunable, ...]:
    """The tunables of a policy."""
    if seen.spec.kind == "program":
        try:
            return tunables_of(seen.spec.source)
        except LintError:
            return ()
    return library.tunables(seen.spec.name) if seen.spec.kind == "editor" else ()


def siblings(run: Run, seen: Seen) -> list[Seen]:
    """The policies of the same structure, itself included."""
    structure = seen.candidate.structure
    return [other for other in run.policies.values() if other.candidate.structure == structure]


def effect(run: Run, seen: Seen, tunable: Tunable) -> list[Tried]:
    """What each tried value of ``tunable`` came to, ascending, whatever the other numbers were."""
    by_value: dict[TunableValue, list[Seen]] = {}
    for other in siblings(run, seen):
        value = other.candidate.values.get(tunable.name)
        if value is not None and other.screening is not None:
            by_value.setdefault(value, []).append(other)
    return [_tried(value, by_value[value]) for value in sorted(by_value)]


def _tried(value: TunableValue, policies: list[Seen]) -> Tried:
    screened = [seen.screening for seen in policies if seen.screening]
    runs = [e for seen in policies for e in seen.episodes.get("train", {}).values()]
    return Tried(
        value=value,
        policies=len(policies),
        ratio=sum(s.ratio for s in screened) / len(screened),
        support=sum(s.support for s in screened) / len(screened),
        accuracy=sum(e.success for e in runs) / len(runs) if runs else None,
        episodes=len(runs),
    )
