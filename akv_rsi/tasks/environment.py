"""The environment protocol: what a suite must offer. The built-in suites use nothing else.

An environment holds one task. The agent's side of the conversation is text: the environment sends
messages, the agent answers with one action, and so on until the environment says it is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from akv_rsi.types import SegmentKind


@dataclass(frozen=True, slots=True)
class Message:
    """One message an environment puts into the conversation.

    ``tool`` names the tool that answered and ``call`` repeats the arguments it was given.
    """

    kind: SegmentKind
    text: str
    tool: str | None = None
    call: str | None = None
    is_error: bool = False
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Observation:
    """New messages for the agent; ``done`` ends the episode, and then they may be empty.

    ``action`` says what the agent's last message was: a tool call, or text of its own (a note).
    """

    messages: tuple[Message, ...]
    done: bool = False
    action: SegmentKind = "tool_call"


class Environment(Protocol):
    """One task: deterministic in its seed and the actions taken."""

    def reset(self) -> Observation:
        """The opening messages: system, tools, user. Called once, first."""
        ...

    def step(self, action: str) -> Observation:
        """The answer to the agent's action, which is its message's text."""
        ...

    def verify(self) -> bool:
        """Whether the task is solved, judged by the environment's own state."""
        ...


@runtime_checkable
class Hindsight(Protocol):
    """An environment that records what is still needed: the oracle policy's source.

    Messages are counted from 0 over the whole conversation, the agent's own included.
    """

    def needed(self) -> frozenset[int]:
        """The messages that some later step of this task still depends on."""
        ...


@runtime_checkable
class Expert(Protocol):
    """An environment that knows the right action. Optional; never asked while an agent plays."""

    def expert(self) -> str:
        """The text a perfect agent would answer now."""
        ...


@runtime_checkable
class Suite(Protocol):
    """A family of tasks. ``--suite package.module:factory`` names a callable that returns one."""

    @property
    def name(self) -> str:
        """The suite's name in results."""
        ...

    def environment(self, seed: int) -> Environment:
        """The task of that seed: any integer >= 0, the same task every time."""
        ...
