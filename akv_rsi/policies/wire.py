"""Writes a policy's decisions into requests for a stateless chat-completions server.

Such a server remembers nothing: each request carries the whole conversation and all cache
operations so far. A policy is a pure function of its context: the messages are enough to find them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from itertools import pairwise
from typing import Any, NamedTuple

from akv_rsi.errors import CapabilityError, ConfigError
from akv_rsi.policies.decision import ops_of
from akv_rsi.policies.dsl import Context
from akv_rsi.policies.executor import Limits
from akv_rsi.policies.resident import AGENT_KINDS, Resident
from akv_rsi.policies.runtime import Meter, Runtime
from akv_rsi.policies.vocabulary import ALL_NEEDS
from akv_rsi.types import Drop, Op, Repos, Segment, SegmentKind, Snapshot
from akv_rsi.visibility import Visibility

Message = Mapping[str, Any]
Payload = dict[str, Any]
# Tokens of the chat template's rendering of the first messages, without a generation prompt.
Counter = Callable[[Sequence[Message]], int]

_MESSAGE_VERBS = frozenset({"drop", "repos"})
_UNKNOWN_TO_CLIENTS = frozenset({"attention", "cost"})
_EPHEMERAL = "<ephemeral_observation>"
_ROLES: dict[str, SegmentKind] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool_result",
}


# The ops before a call, by what may be known then; it may raise `PolicyError`.
Decide = Callable[[Snapshot], tuple[Op, ...]]


def prepare(
    policy: Callable[[Context], None],
    payload: Payload,
    capabilities: frozenset[str],
    reliable_span: int,
    count_tokens: Counter | None = None,
) -> Payload:
    """A copy of ``payload`` with the operations ``policy`` decides on, for all calls so far.

    Whole-message drops and repositioning are written as AKV-SGLang has them: ``drop_message`` maps
    the index of a message to those dropped after it, ``reposition`` lists the messages after which
    positions close up. Anything else is written as ``cache_ops``: ``op``, ``boundary``, ``ranges``
    in tokens, half-open. That, and a policy that counts tokens, needs ``count_tokens``: given the
    first n messages it returns the tokens of their rendering (render the chat template prefix by
    prefix; never tokenise messages apart).

    A tool message counts as an error if it has ``is_error: true``, as ephemeral if its content is
    marked with ``<ephemeral_observation>``. Raises `CapabilityError` for a policy that reads what
    only an engine knows, or when ``count_tokens`` is missing, and `ConfigError` for a payload that
    is no conversation. What the policy raises passes through.
    """
    runtime, resident = Runtime(policy, Meter(Limits().steps)), Resident(ALL_NEEDS)

    def decide(snapshot: Snapshot) -> tuple[Op, ...]:
        runtime.apply(resident.update(snapshot))
        return ops_of(copy_context().run(runtime.decide, snapshot.conversation), snapshot)

    return prepare_by(decide, payload, capabilities, reliable_span, count_tokens)


def prepare_by(
    decide: Decide,
    payload: Payload,
    capabilities: frozenset[str],
    reliable_span: int,
    count_tokens: Counter | None = None,
) -> Payload:
    """As `prepare`, by decisions that are made elsewhere, such as in a sandbox."""
    check_client(capabilities, count_tokens is not None)
    messages = payload.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ConfigError("the payload has no messages")
    # A policy that counts no tokens sees every message as one token long: offsets are indices.
    ends = [
        count_tokens(messages[: i + 1]) if count_tokens else i + 1 for i in range(len(messages))
    ]
    decided = replay(decide, "request", segments_of(messages, ends), reliable_span)
    ops = [op for group in decided.groups for op in group]
    written = _by_message(ops, ends)
    if written is None:
        written = {"cache_ops": [_as_json(op) for op in ops]}
    return {**payload, **written}


def check_client(capabilities: frozenset[str], counts_tokens: bool) -> None:
    """Raises `CapabilityError` for a policy that a client cannot run for a server."""
    if missing := sorted(capabilities & _UNKNOWN_TO_CLIENTS):
        raise CapabilityError(f"a client cannot know {', '.join(missing)}, which this policy reads")
    in_tokens = sorted(capabilities - _MESSAGE_VERBS)
    if in_tokens and not counts_tokens:
        raise CapabilityError(
            f"this policy needs count_tokens, since it uses {', '.join(in_tokens)}"
        )


class Decided(NamedTuple):
    """The ops before each call, and what is visible once the last of them are applied."""

    groups: tuple[tuple[Op, ...], ...] = ()
    state: Visibility = Visibility()


NOTHING = Decided()


def replay(
    decide: Decide,
    conversation: str,
    segments: Sequence[Segment],
    reliable_span: int,
    known: Decided = NOTHING,
) -> Decided:
    """The ops of every call so far and of the one about to be made, call by call.

    ``known`` are those of the first calls, where they have been found before.
    """
    groups, state = list(known.groups), known.state
    calls = calls_of(segments)
    ends = [*calls, len(segments)]
    for turn in range(len(groups), len(ends)):
        if turn:
            state = state.append(segments[calls[turn - 1]].end - state.length)
        shown = tuple(segments[: ends[turn]])
        group = decide(Snapshot(conversation, turn, shown, state, reliable_span))
        state = state.apply(group).visibility
        groups.append(group)
    return Decided(tuple(groups), state)


def calls_of(segments: Sequence[Segment]) -> list[int]:
    """The segments that end an answer of the agent: what each call so far has written."""
    turns = [s.turn if s.kind in AGENT_KINDS else None for s in segments]
    later = [*turns[1:], None]
    return [
        i
        for i, (turn, after) in enumerate(zip(turns, later, strict=True))
        if turn is not None and turn != after
    ]


def segments_of(messages: Sequence[Message], ends: Sequence[int]) -> list[Segment]:
    """The messages as segments; ``ends`` says where each one ends, in tokens."""
    answers: dict[str, tuple[str, str]] = {}
    segments: list[Segment] = []
    turn = 0
    for number, (message, (start, end)) in enumerate(
        zip(messages, pairwise([0, *ends]), strict=True)
    ):
        kind = _kind(message)
        if kind in ("assistant", "tool_call"):
            turn += 1
        for call in message.get("tool_calls") or ():
            answers[call["id"]] = (call["function"]["name"], call["function"]["arguments"])
        text = _text(message)
        tool, arguments = answers.get(str(message.get("tool_call_id")), (None, None))
        opening = turn == 0 and (number == 0 or kind in ("system", "user"))
        segments.append(
            Segment(
                id=number,
                kind=kind,
                turn=max(turn - 1, 0),
                start=start,
                end=end,
                text=text,
                tool=tool,
                call=arguments,
                is_error=bool(message.get("is_error", False)),
                ephemeral=_EPHEMERAL in text,
                pinned=opening,
            )
        )
    return segments


def _kind(message: Message) -> SegmentKind:
    role = message.get("role")
    if role not in _ROLES:
        raise ConfigError(f"a message has the role {role!r}: use one of {', '.join(_ROLES)}")
    if role == "assistant" and message.get("tool_calls") and not message.get("content"):
        return "tool_call"
    return _ROLES[role]


def _text(message: Message) -> str:
    """Content as text, and the calls behind it."""
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = " ".join(part.get("text", "") for part in content)
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return " ".join([content, *(f"{call['name']} {call['arguments']}" for call in calls)]).strip()


def _by_message(ops: Sequence[Op], ends: Sequence[int]) -> Payload | None:
    """The ops in terms of whole messages; None when they cannot be said so."""
    message_at = {end: number for number, end in enumerate(ends)}
    starts = [0, *ends]
    drops: dict[str, list[int]] = {}
    reposition: list[int] = []
    for op in ops:
        if op.boundary not in message_at or not isinstance(op, Drop | Repos):
            return None
        after = message_at[op.boundary]
        if isinstance(op, Repos):
            reposition.append(after)
            continue
        inside = [
            n for n in range(after + 1) for s, e in op.ranges if s <= starts[n] < ends[n] <= e
        ]
        if sum(ends[n] - starts[n] for n in inside) != sum(e - s for s, e in op.ranges):
            return None
        drops[str(after)] = inside
    return {"drop_message": drops, "reposition": reposition}


def _as_json(op: Op) -> Payload:
    ranges = {} if isinstance(op, Repos) else {"ranges": [list(r) for r in op.ranges]}
    return {"op": type(op).__name__.lower(), "boundary": op.boundary, **ranges}
