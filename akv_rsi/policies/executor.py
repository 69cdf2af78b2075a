"""Where a policy runs: the protocol of the sandbox and of plain Python, and the latter."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Protocol

from akv_rsi.errors import PolicyCrash, PolicyError, PolicyMemory, PolicyTimeout
from akv_rsi.policies import dsl
from akv_rsi.policies.instrument import METER, POWER, Code
from akv_rsi.policies.resident import Asked, Delta
from akv_rsi.policies.runtime import Meter, Runtime, bounded_power
from akv_rsi.policies.vocabulary import BUILTINS

_FILE = "<policy>"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one decision may use.

    ``steps`` (rounds of loops and calls of the policy's functions) decide on every machine alike;
    ``memory`` (bytes, with the resident conversations) and ``recursion`` (nested calls) bind in the
    sandbox. ``seconds`` is the backstop there for what is no step, such as sorting a huge list.
    """

    steps: int = 200_000
    memory: int = 256 << 20
    recursion: int = 100
    seconds: float = 10.0


class SessionLost(Exception):  # an event between our own modules
    """The sandbox gave up its worker, for ``reason``; nothing is resident any more.

    ``certain``: the policy did it. Otherwise the worker died, and only if it dies again did it.
    """

    def __init__(self, reason: PolicyError, certain: bool) -> None:
        super().__init__(str(reason))
        self.reason = reason
        self.certain = certain


class Executor(Protocol):
    """Runs one policy over resident conversations."""

    def turn(self, deltas: Sequence[Delta], gone: Sequence[str]) -> list[Asked | None]:
        """What the policy asks for in each conversation, None where it failed.

        Conversations that are ``gone`` are forgotten first. Raises `SessionLost`.
        """
        ...

    def failure(self, conversation: str) -> PolicyError:
        """Why the policy failed there, found by asking it again. Raises `SessionLost`."""
        ...

    def close(self) -> None:
        """Frees what it holds. It may be called twice."""
        ...


class Plain:
    """Runs a policy in this process. For source that is trusted, or has passed lint and sandbox."""

    def __init__(self, code: Code, limits: Limits) -> None:
        self._lines = code.lines
        self._meter = Meter(limits.steps)
        names: dict[str, Any] = {name: getattr(dsl, name) for name in dsl.__all__}
        builtins = {name: _builtin(name) for name in (*BUILTINS, "next")}
        names |= {"__builtins__": builtins, METER: self._meter, POWER: bounded_power}
        try:
            exec(compile(code.text, _FILE, "exec"), names)
        except Exception as error:  # the trial boundary: a policy's constants
            raise self._fault(error) from error
        policy: Callable[[dsl.Context], None] = names["policy"]
        self._runtime = Runtime(policy, self._meter)

    def turn(self, deltas: Sequence[Delta], gone: Sequence[str]) -> list[Asked | None]:
        """See `Executor.turn`."""
        # In a context of its own, so that no decision stays open for verbs outside of a policy.
        return copy_context().run(self._runtime.turn, list(deltas), list(gone))

    def failure(self, conversation: str) -> PolicyError:
        """See `Executor.failure`."""
        try:
            copy_context().run(self._runtime.decide, conversation)
        except Exception as error:  # noqa: BLE001  # the trial boundary: whatever a policy raises
            if self._meter.is_empty():
                return out_of_steps(self._meter.steps)
            return self._fault(error)
        return PolicyCrash("the policy failed once and then did not: it is not a pure function")

    def close(self) -> None:
        """See `Executor.close`."""

    def _fault(self, error: Exception) -> PolicyError:
        frames = traceback.extract_tb(error.__traceback__)
        at = [frame.lineno for frame in frames if frame.filename == _FILE and frame.lineno]
        return fault(error, self._lines.get(at[-1]) if at else None)


def fault(error: BaseException, line: int | None) -> PolicyError:
    """The error of ours that stands for ``error``, raised by a policy at ``line`` of its source."""
    where = f"line {line}: " if line else ""
    message = f"{where}{error or 'failed'} ({type(error).__name__})"
    if isinstance(error, TimeoutError):
        return PolicyTimeout(message)
    if isinstance(error, MemoryError | RecursionError):
        return PolicyMemory(message)
    return PolicyCrash(message)


def out_of_steps(steps: int) -> PolicyTimeout:
    """The error of a decision that used up its steps."""
    return PolicyTimeout(f"a decision took more than {steps:,} steps: is there an endless loop?")


def _builtin(name: str) -> object:
    value: object = getattr(__import__("builtins"), name)
    return value
