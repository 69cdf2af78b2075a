"""Policies and candidates as they are named on the command line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from akv_rsi.errors import ConfigError
from akv_rsi.policies import library
from akv_rsi.policies.open import read_policy
from akv_rsi.policies.spec import PolicySpec, TunableValue
from akv_rsi.search.candidate import Candidate
from akv_rsi.search.store import Store

ORACLE = PolicySpec("oracle", kind="oracle")
DIRECTED = PolicySpec("agent-directed", kind="agent")


def policy_named(name: str, oracle: bool = True) -> PolicySpec:
    """A built-in policy, with numbers if they are to differ (``rolling_drop:keep=4``), or a file.

    ``oracle`` says whether hindsight can be asked for, and an agent that has the tool
    `manage_cache`: both need an environment. `ConfigError` for an unknown name.
    """
    base, _, rest = name.partition(":")
    values = dict(_assignment(part) for part in rest.split(",")) if rest else {}
    if base in (*library.names(), *library.on_request()):
        return library.spec(base, **values)
    if oracle and base == ORACLE.name and not values:
        return ORACLE
    if oracle and base == DIRECTED.name and not values:
        return DIRECTED
    if not base.endswith(".py") and not Path(base).is_file():
        others = [ORACLE.name, DIRECTED.name] if oracle else []
        known = ", ".join((*library.names(), *library.on_request(), *others))
        raise ConfigError(f"unknown policy {name!r}: use {known}, or a .py file")
    return replace(read_policy(base), tunables=tuple(sorted(values.items())))


def candidate_of(store: Store, identity: str) -> Candidate:
    """The candidate that a run called ``identity``; `ConfigError` when it ran none of that id.

    A run may be someone else's, so its policies are trusted by nobody: lint and sandbox again.
    """
    for event in store.events("proposals"):
        for row in event.body:
            candidate: Candidate = row["candidate"]
            if candidate.id == identity and not row["fate"]:
                return replace(candidate, spec=replace(candidate.spec, trusted=False))
    raise ConfigError(f"{store.path} ran no candidate {identity!r}")


def _assignment(text: str) -> tuple[str, TunableValue]:
    key, _, value = text.partition("=")
    try:
        return key, int(value) if value.lstrip("-").isdigit() else float(value)
    except ValueError as error:
        raise ConfigError(f"{text!r} sets no number: write name=value, as in keep=4") from error
