"""Proof by replay that a policy decides alike in the sandbox and in plain Python."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from akv_rsi.errors import ParityError, PolicyCrash, PolicyError
from akv_rsi.policies.executor import Limits
from akv_rsi.policies.open import open_policy
from akv_rsi.policies.program import Decided
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.types import Snapshot


@dataclass(frozen=True, slots=True)
class ParityProof:
    """How many recorded contexts were replayed, and the SHA-256 of the decisions taken on them."""

    decisions: int
    digest: str


def check_parity(
    spec: PolicySpec, snapshots: Sequence[Snapshot], limits: Limits | None = None
) -> ParityProof:
    """Replays ``snapshots`` through both; raises `ParityError` at the first that differs.

    The sandbox goes first: what breaks its limits is raised as it is, and never runs outside.
    """
    digest = hashlib.sha256()
    with (
        open_policy(replace(spec, trusted=False), limits) as sandboxed,
        open_policy(replace(spec, trusted=True), limits) as plain,
    ):
        for wave in _waves(snapshots):
            decided = sandboxed.decide_many(wave)
            for outcome in decided:
                if isinstance(outcome, PolicyError) and not isinstance(outcome, PolicyCrash):
                    raise outcome
            for snapshot, there, here in zip(wave, decided, plain.decide_many(wave), strict=True):
                if _outcome(there) != _outcome(here):
                    raise ParityError(
                        f"{spec.name} at turn {snapshot.turn} of {snapshot.conversation}:"
                        f" the sandbox decided {there}, plain Python {here}"
                    )
                digest.update(_outcome(there).encode())
    return ParityProof(len(snapshots), digest.hexdigest())


def _outcome(decided: Decided) -> str:
    """What is compared: the ops, or the kind of error (its words differ between interpreters)."""
    return type(decided).__name__ if isinstance(decided, PolicyError) else repr(decided)


def _waves(snapshots: Sequence[Snapshot]) -> Iterator[list[Snapshot]]:
    """The snapshots in order, cut so that no conversation occurs twice in a wave."""
    wave: list[Snapshot] = []
    names: set[str] = set()
    for snapshot in snapshots:
        if snapshot.conversation in names:
            yield wave
            wave, names = [], set()
        wave.append(snapshot)
        names.add(snapshot.conversation)
    if wave:
        yield wave
