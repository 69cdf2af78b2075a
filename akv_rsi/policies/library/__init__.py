"""The built-in policies, one a file: programs in the DSL, and editors of the text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from akv_rsi.errors import ConfigError
from akv_rsi.policies.editor import Edit, Editor
from akv_rsi.policies.library.decision_tree import DecisionTree
from akv_rsi.policies.library.summarise import Summarise
from akv_rsi.policies.library.trim import Trim
from akv_rsi.policies.library.truncate import Truncate
from akv_rsi.policies.spec import PolicySpec, TunableValue
from akv_rsi.policies.tunables import Tunable, tunables_of
from akv_rsi.types import Op, Snapshot

PROGRAMS = (
    "full",
    "rolling_drop",
    "rolling_drop_repos",
    "rolling_drop_refresh",
    "sinks_window",
    "ephemeral_tags",
    "supersede_aware",
)
# They read the attention that the engine measures, so they can be run but not replayed.
MEASURED = ("heavy_hitter", "attention_mass")
EDITORS: Mapping[str, type[Truncate] | type[Trim] | type[Summarise]] = MappingProxyType(
    {"truncate": Truncate, "trim": Trim, "summarise": Summarise}
)
# They decide between ops and edits. Where nothing is marked they are what they end in, an editor.
TREES: Mapping[str, type[DecisionTree]] = MappingProxyType({"decision_tree": DecisionTree})


def names() -> tuple[str, ...]:
    """The built-in policies that a recorded conversation can decide: programs, then editors."""
    return (*PROGRAMS, *EDITORS)


def on_request() -> tuple[str, ...]:
    """The others, which run only when they are asked for by name."""
    return (*MEASURED, *TREES)


def tunables(name: str) -> tuple[Tunable, ...]:
    """The numbers of a built-in policy that may be chosen."""
    if name in EDITORS:
        return EDITORS[name].tunables
    if name in TREES:
        return TREES[name].tunables
    return tunables_of(_source(name))


def spec(name: str, **values: TunableValue) -> PolicySpec:
    """A built-in policy as data; `ConfigError` for an unknown name, tunable or value."""
    chosen = tuple(sorted(_checked(name, values).items()))
    if name in (*EDITORS, *TREES):
        return PolicySpec(name, kind="editor", tunables=chosen, trusted=True)
    return PolicySpec(name, source=_source(name), tunables=chosen, trusted=True)


def editor(name: str, **values: TunableValue) -> Editor:
    """A text-editing baseline; errors as `spec`."""
    if name not in EDITORS:
        raise ConfigError(f"{name!r} is no text-editing policy: use {', '.join(EDITORS)}")
    made: Editor = EDITORS[name](**_checked(name, values))  # type: ignore[arg-type]
    return made


def decider(spec: PolicySpec) -> Callable[[Snapshot], Edit | tuple[Op, ...]]:
    """What an editor or a tree does before a call: an edit, or ops, of which there may be none."""
    values = dict(spec.tunables)
    if spec.name in TREES:
        return TREES[spec.name](**_checked(spec.name, values)).decide  # type: ignore[arg-type]
    made = editor(spec.name, **values)
    return lambda snapshot: made.edit(snapshot) or ()


def _checked(name: str, values: Mapping[str, TunableValue]) -> dict[str, TunableValue]:
    known = {tunable.name: tunable for tunable in tunables(name)}
    if unknown := sorted(set(values) - set(known)):
        has = ", ".join(known) or "none"
        raise ConfigError(f"{name} has no tunable {', '.join(unknown)} (it has: {has})")
    return {key: known[key].check(value) for key, value in values.items()}


def _source(name: str) -> str:
    if name not in (*PROGRAMS, *MEASURED):
        known = ", ".join((*names(), *on_request()))
        raise ConfigError(f"unknown policy {name!r}: use {known}, or a file")
    return Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
