"""Numbers for a structure: Optuna proposes values under the cost constraint.

The run's events are the truth. A study is rebuilt from them for every question and its sampler
seeded for that one question, so nothing of Optuna's needs to survive a resume.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution

from akv_rsi.policies.spec import TunableValue
from akv_rsi.policies.tunables import Tunable

STARTUP = 4  # trials before the model of what is good is believed
ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class Trial:
    """Values that were tried, their ``accuracy`` and by how much their cost exceeds the budget.

    Before a model ran, the support on recorded trajectories stands for the accuracy. Values whose
    policy was at fault have none: they teach nothing, and are not tried again.
    """

    values: Mapping[str, TunableValue]
    accuracy: float | None = None
    excess: float = 0.0


def suggest(
    tunables: Sequence[Tunable], trials: Sequence[Trial], seed: int, question: str
) -> dict[str, TunableValue] | None:
    """Values not tried yet; None when there are none to be found.

    The defaults come first. ``question`` names this trial: the same one gets the same answer.
    """
    if not tunables:
        return None if trials else {}
    tried = {_key(trial.values) for trial in trials}
    defaults = {t.name: t.default for t in tunables}
    if _key(defaults) not in tried:
        return defaults
    space = {t.name: _distribution(t) for t in tunables}
    for attempt in range(ATTEMPTS):
        study = _study(space, trials, derive(seed, f"{question}/{attempt}"))
        values = study.ask(space).params
        if _key(values) not in tried:
            return dict(values)
    return None


def derive(seed: int, name: str) -> int:
    """A seed of 32 bits for the thing called ``name``."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:4], "big")


def _study(
    space: dict[str, BaseDistribution], trials: Sequence[Trial], seed: int
) -> optuna.study.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.add_trials(
        [
            optuna.trial.create_trial(
                params=dict(trial.values),
                distributions=space,
                value=trial.accuracy,
                constraints={"cost": trial.excess},
            )
            for trial in trials
            if trial.accuracy is not None
        ]
    )
    return study


def _distribution(tunable: Tunable) -> BaseDistribution:
    if tunable.integer:
        return IntDistribution(int(tunable.low), int(tunable.high), log=tunable.log)
    return FloatDistribution(float(tunable.low), float(tunable.high), log=tunable.log)


def _key(values: Mapping[str, TunableValue]) -> tuple[tuple[str, TunableValue], ...]:
    return tuple(sorted(values.items()))
