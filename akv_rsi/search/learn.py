"""What some segments have in common and others have not, in conditions that a policy can state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np
from numpy.typing import NDArray

from akv_rsi.search.grammar import AGE, MENTIONS, TOKENS, Condition, Number, tool_test
from akv_rsi.search.traits import MOST_MENTIONS, STEPS, Traits

LONGEST = 4  # conditions
# Of the conditions that help, how often the best, the second and the third is taken.
ODDS = (5, 2, 1)
LEAST_GAIN = 0.01

Mask = NDArray[np.bool_]
Weighed = Sequence[tuple[Traits, float]]


@dataclass(frozen=True, slots=True)
class Atom:
    """A condition, and the same as a test of traits."""

    condition: Condition
    holds: Callable[[Traits], bool]


def common(yes: Weighed, no: Weighed, aversion: float, rng: Random) -> tuple[Condition, ...]:
    """Conditions that hold together for much of ``yes`` and little of ``no``; maybe none at all.

    They maximise the share of ``yes`` less ``aversion`` times the share of ``no``, by weight, one
    condition at a time. ``rng`` lets the second best go first now and then.
    """
    rows = [traits for traits, _ in (*yes, *no)]
    weights = np.array([weight for _, weight in (*yes, *no)], dtype=np.float64)
    weights[: len(yes)] /= weights[: len(yes)].sum() or 1.0
    weights[len(yes) :] *= -aversion / (weights[len(yes) :].sum() or 1.0)
    atoms = atoms_of(rows)
    masks = {i: np.array([atom.holds(row) for row in rows]) for i, atom in enumerate(atoms)}
    for odds in (ODDS, ODDS[:1]):  # what chance made a bad beginning of is begun again without
        chosen, held = _climb(masks, weights, odds, rng)
        if float(weights[held].sum()) > 0:
            return tuple(atoms[i].condition for i in chosen)
    return ()


def _climb(
    masks: dict[int, Mask], weights: NDArray[np.float64], odds: Sequence[int], rng: Random
) -> tuple[list[int], Mask]:
    """Atoms chosen one by one, and what they hold of together."""
    left, chosen = dict(masks), list[int]()
    held = np.ones(len(weights), dtype=np.bool_)
    while len(chosen) < LONGEST and (better := _better(left, held, weights)[: len(odds)]):
        chosen.append(rng.choices(better, odds[: len(better)])[0])
        held &= left.pop(chosen[-1])
    return chosen, held


def _better(masks: dict[int, Mask], held: Mask, weights: NDArray[np.float64]) -> list[int]:
    """The few atoms that improve most on what is held already, the best first."""
    now = float(weights[held].sum())
    values = {i: float(weights[held & mask].sum()) for i, mask in masks.items()}
    ranked = sorted(values, key=lambda i: (-values[i], i))
    return [i for i in ranked if values[i] >= now + LEAST_GAIN][: len(ODDS)]


def atoms_of(rows: Iterable[Traits]) -> list[Atom]:
    """The conditions that tell some of ``rows`` from others."""
    rows = list(rows)
    atoms = [*_targets(rows), *_flags(), *_numbers()]
    return [atom for atom in atoms if len({atom.holds(row) for row in rows}) == 2]


def _targets(rows: Sequence[Traits]) -> list[Atom]:
    """A kind; a tool; all tools but one."""
    kinds, tools = ({getattr(row, name) for row in rows} - {""} for name in ("kind", "tool"))
    atoms = [
        Atom(Condition(f'{{seg}}.kind == "{kind}"'), lambda t, kind=kind: t.kind == kind)  # type: ignore[misc]
        for kind in sorted(kinds)
    ]
    sets = [{tool} for tool in sorted(tools)]
    sets += [tools - {tool} for tool in sorted(tools) if len(tools) > 2]
    return [*atoms, *(_one_of(some) for some in sets)]


def _one_of(tools: set[str]) -> Atom:
    return Atom(Condition(tool_test(tools, "{seg}")), lambda traits: traits.tool in tools)


def _flags() -> list[Atom]:
    return [
        Atom(Condition("{seg}.is_error"), lambda t: t.is_error),
        Atom(Condition("not {seg}.is_error"), lambda t: not t.is_error),
        Atom(Condition("{seg}.ephemeral"), lambda t: t.ephemeral),
        Atom(Condition("not {seg}.ephemeral"), lambda t: not t.ephemeral),
        Atom(Condition("{seg}.superseded_by is not None"), lambda t: t.superseded),
        Atom(Condition("{seg}.superseded_by is None"), lambda t: not t.superseded),
        Atom(Condition("{ctx}.notes_about({seg})"), lambda t: t.noted),
        Atom(Condition("not {ctx}.notes_about({seg})"), lambda t: not t.noted),
    ]


def _numbers() -> list[Atom]:
    """Bounds, whose numbers the tuner may move later."""
    atoms = []
    for name, number in (("age", AGE), ("tokens", TOKENS), ("mentioned", MENTIONS)):
        field = "mentioned_later" if name == "mentioned" else name
        top = MOST_MENTIONS if name == "mentioned" else number.high
        for bound in (n for n in STEPS if number.low <= n <= top):
            atoms.append(_at_least(field, name, replace(number, default=bound)))
            atoms.append(_below(field, name, replace(number, default=bound)))
    return atoms


def _at_least(field: str, name: str, number: Number) -> Atom:
    bound = number.default
    return Atom(
        Condition(f"{{seg}}.{field} >= {{n}}", number), lambda t: bool(getattr(t, name) >= bound)
    )


def _below(field: str, name: str, number: Number) -> Atom:
    bound = number.default
    return Atom(
        Condition(f"{{seg}}.{field} < {{n}}", number), lambda t: bool(getattr(t, name) < bound)
    )
