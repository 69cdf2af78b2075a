"""The built-in suites, and how any suite is found and split."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from akv_rsi.errors import ConfigError
from akv_rsi.tasks.environment import Suite
from akv_rsi.tasks.episode import Split, TaskRef

BUILT_IN = ("repo", "web", "tools")
# Seeds of the splits never meet; the reference agent was trained on seeds from TRAINED_FROM on.
FIRST_SEED: dict[Split, int] = {"train": 0, "validation": 1_000_000, "test": 2_000_000}
TRAINED_FROM = 10_000_000


def load_suite(name: str) -> Suite:
    """A built-in suite by name, or the one that ``package.module:factory`` returns."""
    if name in BUILT_IN:
        suite: Suite = importlib.import_module(f"akv_rsi.tasks.suites.{name}").SUITE
        return suite
    module, colon, factory = name.partition(":")
    if not colon:
        raise ConfigError(
            f"unknown suite {name!r}: use {', '.join(BUILT_IN)}, or package.module:factory"
        )
    try:
        with _current_folder():
            made = getattr(importlib.import_module(module), factory)()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"suite {name!r} cannot be loaded: {error}") from error
    if not isinstance(made, Suite):
        raise ConfigError(
            f"suite {name!r}: {factory}() returned no Suite (name, environment(seed))"
        )
    return made


@contextmanager
def _current_folder() -> Iterator[None]:
    """Modules of the folder the command was called from can be imported, for a moment.

    Not for longer: a folder there could stand in front of an installed package of the same name.
    """
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def task_refs(suites: tuple[str, ...], split: Split, count: int) -> list[TaskRef]:
    """``count`` tasks of a split, taken from the suites in turn; each suite's seeds run upward."""
    if not suites or count < 1:
        raise ConfigError(
            f"{count} tasks over {len(suites)} suites: name a suite and at least one task"
        )
    first = FIRST_SEED[split]
    return [TaskRef(suites[i % len(suites)], first + i // len(suites), split) for i in range(count)]
