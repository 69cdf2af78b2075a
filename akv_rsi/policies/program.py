"""A policy program: snapshots in, ops out, wherever its source runs."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from akv_rsi.errors import CapabilityError, PolicyError
from akv_rsi.policies.decision import ops_of
from akv_rsi.policies.executor import Executor, SessionLost
from akv_rsi.policies.resident import Asked, Delta, Resident
from akv_rsi.policies.vocabulary import capabilities_of, needs_of
from akv_rsi.types import Op, Snapshot

# What conversations may take in the executor: half of its limit. One that was pushed out is sent
# again when it comes back.
RESIDENT_BYTES = 128 << 20

Decided = tuple[Op, ...] | PolicyError


class Program:
    """A policy that runs its source in an executor. Close it, or use it as a context manager.

    A decision depends on its snapshot alone; what stays resident between decisions only saves work.
    """

    def __init__(self, name: str, source: str, executor: Executor) -> None:
        self._name = name
        self._needs = needs_of(source)
        self._capabilities = capabilities_of(source)
        self._executor = executor
        self._resident: dict[str, Resident] = {}

    @property
    def name(self) -> str:
        """The name of the policy's specification."""
        return self._name

    @property
    def capabilities(self) -> frozenset[str]:
        """What it needs of its target; see `Policy`."""
        return self._capabilities

    def decide(self, snapshot: Snapshot) -> tuple[Op, ...]:
        """The ops at ``snapshot.boundary``; `PolicyError` when the policy is at fault."""
        (decided,) = self.decide_many([snapshot])
        if isinstance(decided, PolicyError):
            raise decided
        return decided

    def decide_many(self, snapshots: Sequence[Snapshot]) -> list[Decided]:
        """The same decisions as one by one, in one round trip: ops, or the error, for each.

        The snapshots are of different conversations.
        """
        if "attention" in self._needs and any(s.attention is None for s in snapshots):
            return [CapabilityError("the policy reads attention, which was not measured")] * len(
                snapshots
            )
        try:
            return self._decide(snapshots)
        except SessionLost:
            self._resident.clear()
        # One of them broke the worker. Each goes alone, so that its outcome is its own.
        return [self._decide_alone(snapshot) for snapshot in snapshots]

    def close(self) -> None:
        """Ends the executor's process, if it has one. It may be called twice."""
        self._resident.clear()
        self._executor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _decide(self, snapshots: Sequence[Snapshot]) -> list[Decided]:
        deltas = [self._delta(snapshot) for snapshot in snapshots]
        asked = self._executor.turn(deltas, self._forget({s.conversation for s in snapshots}))
        return [self._decided(s, a) for s, a in zip(snapshots, asked, strict=True)]

    def _decide_alone(self, snapshot: Snapshot) -> Decided:
        """The decision, or why it breaks a worker in which nothing else is resident."""
        try:
            return self._decide([snapshot])[0]
        except SessionLost as lost:
            alone = set(self._resident) == {snapshot.conversation}
            self._resident.clear()
            if alone and lost.certain:
                return lost.reason
        try:
            return self._decide([snapshot])[0]
        except SessionLost as lost:
            self._resident.clear()
            return lost.reason

    def _decided(self, snapshot: Snapshot, asked: Asked | None) -> Decided:
        if asked is None:
            return self._executor.failure(snapshot.conversation)
        try:
            return ops_of(asked, snapshot)
        except PolicyError as error:
            return error

    def _delta(self, snapshot: Snapshot) -> Delta:
        resident = self._resident.pop(snapshot.conversation, None)
        if resident is None or not resident.is_prefix_of(snapshot):
            resident = Resident(self._needs)
        self._resident[snapshot.conversation] = resident  # the latest stand last
        return resident.update(snapshot)

    def _forget(self, needed: set[str]) -> list[str]:
        """Forgets the conversations that were decided on longest ago, while all take too much."""
        total = sum(resident.size for resident in self._resident.values())
        gone = []
        for name in list(self._resident):
            if total <= RESIDENT_BYTES or name in needed:
                break  # those that are needed stand last
            total -= self._resident.pop(name).size
            gone.append(name)
        return gone
