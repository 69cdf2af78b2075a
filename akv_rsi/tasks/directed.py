"""Agent-directed cache management: a tool `manage_cache` that the agent itself may call.

    manage_cache drop 3 5 because the build is done
    manage_cache restore 3
    manage_cache repos

Numbers are messages, counted from 0 in the order of the conversation, the agent's own included. The
call is a turn like any other and is charged as one. What it asks for happens before the next call.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from akv_rsi.policies.ranges import intersect, merge
from akv_rsi.policies.resident import AGENT_KINDS, current_turn_start
from akv_rsi.tasks.environment import Environment, Message, Observation
from akv_rsi.types import Drop, Op, Range, Repos, Restore, Snapshot

TOOL = "manage_cache"
ABOUT = (
    f"{TOOL} : drop NUMBERS , restore NUMBERS , or repos ; then because and a reason . "
    "it hides messages from you , shows them again , or closes the gaps . "
    "messages are counted from 0"
)
_CALL = re.compile(rf"{TOOL} (drop|restore|repos)((?: \d+)*)(?: because (.*))?$")


class Wish(NamedTuple):
    """What a call asks for."""

    verb: str
    messages: frozenset[int]
    reason: str


def wish_of(action: str) -> Wish | None:
    """The wish in an action; None when it is no call of the tool, or a malformed one.

    >>> wish_of("manage_cache drop 3 5 because they are old")
    Wish(verb='drop', messages=frozenset({3, 5}), reason='they are old')
    """
    match = _CALL.match(" ".join(action.split()))
    if match is None or (match[1] == "repos") == bool(match[2]):
        return None
    return Wish(match[1], frozenset(map(int, match[2].split())), match[3] or "")


def directed_ops(snapshot: Snapshot) -> tuple[Op, ...]:
    """The ops that the agent asked for with its last action.

    What cannot be done is left out: the pinned and the current turn stay, and what has lost its
    place is given one by a repos.
    """
    last = next((s for s in reversed(snapshot.segments) if s.kind in AGENT_KINDS), None)
    wish = wish_of(last.text) if last is not None else None
    if wish is None:
        return ()
    boundary, state = snapshot.boundary, snapshot.visibility
    if wish.verb == "repos":
        return (Repos(boundary),) if state.next_position > state.attended else ()
    end = current_turn_start(snapshot)
    asked: list[Range] = merge(
        (s.start, s.end)
        for s in snapshot.segments
        if s.id in wish.messages and not s.pinned and s.end <= end
    )
    seen = list(state.visible_ranges)
    if wish.verb == "drop":
        ranges = intersect(asked, seen)
        return (Drop(boundary, tuple(ranges)),) if ranges else ()
    hidden = merge((run.start, run.end) for run in state.runs if not run.visible)
    ranges = intersect(asked, hidden)
    lost = merge((run.start, run.end) for run in state.runs if run.position is None)
    tail: tuple[Op, ...] = (Repos(boundary),) if intersect(ranges, lost) else ()
    return (Restore(boundary, tuple(ranges)), *tail) if ranges else ()


class Directed:
    """An environment whose agent has the tool. The environment itself sees none of it."""

    def __init__(self, inner: Environment) -> None:
        self._inner = inner
        self._asked = ""

    def reset(self) -> Observation:
        """The opening messages, and what the tool does."""
        opening = self._inner.reset()
        self._asked = _instruction(opening)
        head, *rest = opening.messages
        return Observation((head, Message("tools", ABOUT), *rest))

    def step(self, action: str) -> Observation:
        """A call of the tool is answered here; anything else is the environment's."""
        if action.split()[:1] != [TOOL]:
            observation = self._inner.step(action)
            self._asked = _instruction(observation)
            return observation
        told = "done" if wish_of(action) is not None else f"error : {ABOUT}"
        text = f"{told} . {self._asked}" if self._asked else told
        return Observation((Message("tool_result", text, TOOL, action.partition(" ")[2]),))

    def verify(self) -> bool:
        """The environment's own verdict."""
        return self._inner.verify()


def _instruction(observation: Observation) -> str:
    """What the last message says is to be done next: the answer of the tool must not hide it."""
    text = observation.messages[-1].text if observation.messages else ""
    _, marker, after = text.rpartition("next :")
    return f"next :{after}" if marker else ""
