"""A policy that runs on the server, for clients that send no ops of their own.

The policy is a pure function of the conversation, so the ops of all calls so far are found again
from any request; what was found before is only remembered to save work. A policy that fails before
a call takes no part in that call: what it decided before stays, and the answer says so.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from akv_rsi.errors import CapabilityError, ConfigError, PolicyError
from akv_rsi.policies.executor import Limits
from akv_rsi.policies.open import open_policy
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.policies.wire import NOTHING, Decided, calls_of, replay
from akv_rsi.server.origins import Origin, origins
from akv_rsi.types import Op, OpHistory, Segment, Snapshot

# What a stateless server cannot tell a policy.
_UNKNOWN = frozenset({"attention", "cost"})


@dataclass(frozen=True, slots=True)
class Plan:
    """What the policy decided before each call, the last one about to be made.

    ``failures`` are the calls it failed before, and why.
    """

    decided: Decided = NOTHING
    failures: tuple[tuple[int, str], ...] = ()

    @property
    def history(self) -> OpHistory:
        """All ops."""
        return OpHistory(tuple(op for group in self.decided.groups for op in group))

    @property
    def error(self) -> str | None:
        """Why the policy took no part in the call about to be made, if so."""
        last = len(self.decided.groups) - 1
        return next((why for turn, why in self.failures if turn == last), None)


class Planner:
    """Runs one policy in a sandbox. It is used by one thread at a time; close it when done."""

    def __init__(
        self, spec: PolicySpec, reliable_span: int, limits: Limits, capacity: int = 4096
    ) -> None:
        if spec.kind != "program":
            raise ConfigError(
                f"{spec.name} edits the text, and a server does not: use a policy of cache ops"
            )
        self.spec = spec
        self._policy = open_policy(spec, limits)
        if missing := sorted(self._policy.capabilities & _UNKNOWN):
            raise CapabilityError(
                f"{spec.name} reads {', '.join(missing)}, which this server does not measure"
            )
        self.pause: Callable[[], None] = lambda: None
        """Called before each decision: in between, others may plan."""
        self._span, self._limits = reliable_span, limits
        self._capacity = capacity
        self._plans: OrderedDict[bytes, Plan] = OrderedDict()

    def plan(self, session: str, segments: Sequence[Segment]) -> Plan:
        """The ops of the conversation ``session``, all of its calls included."""
        keys = _keys(session, segments)
        known = next((self._plans[key] for key in reversed(keys) if key in self._plans), Plan())
        failures = list(known.failures)

        def decide(snapshot: Snapshot) -> tuple[Op, ...]:
            self.pause()
            try:
                return self._policy.decide(snapshot)
            except PolicyError as error:
                failures.append((snapshot.turn, str(error)))
                return ()

        decided = replay(decide, session, segments, self._span, known.decided)
        plan = Plan(decided, tuple(failures))
        self._plans[keys[-1]] = plan
        self._plans.move_to_end(keys[-1])
        while len(self._plans) > self._capacity:
            self._plans.popitem(last=False)
        return plan

    def origins(self, segments: Sequence[Segment], plan: Plan) -> dict[Op, list[Origin]]:
        """The lines of the policy's source that each op of ``plan`` comes from."""
        return origins(self.spec, self._limits, self._span, segments, plan.decided.groups)

    def close(self) -> None:
        """Ends the sandbox."""
        self._policy.close()


def _keys(session: str, segments: Sequence[Segment]) -> list[bytes]:
    """Per call, the digest of all that may be known before it."""
    running, keys, done = hashlib.sha256(session.encode()), [], 0
    for end in [*calls_of(segments), len(segments)]:
        for segment in segments[done:end]:
            running.update(repr(segment).encode())
        done = end
        keys.append(running.digest())
    return keys
