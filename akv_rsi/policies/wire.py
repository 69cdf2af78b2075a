"""Writes a policy's decisions into requests for a stateless chat-completions server.

Such a server remembers nothing: each request carries the whole conversation and all cache
operations so far. A policy is a pure function of its context: the messages are enough to find them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from itertools import pairwise
from typing import Any

from akv_rsi.errors import CapabilityError, ConfigError
from akv_rsi.policies.decision import ops_of
from akv_rsi.policies.dsl import Context
from akv_rsi.policies.executor import Limits
from akv_rsi.policies.resident import Resident
from akv_rsi.policies.runtime import Meter, Runtime
from akv_rsi.policies.vocabulary import ALL_NEEDS
from akv_rsi.types import Drop, Op, OpHistory, Repos, Segment, SegmentKind, Snapshot
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
    if missing := sorted(capabilities & _UNKNOWN_TO_CLIENTS):
        raise CapabilityError(f"a client cannot know {', '.join(missing)}, which this policy reads")
    in_tokens = bool(capabilities - _MESSAGE_VERBS)
    if in_tokens and count_tokens is None:
        needs = ", ".join(sorted(capabilities - _MESSAGE_VERBS))
        raise CapabilityError(f"this policy needs count_tokens, since it uses {needs}")
    messages = payload.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ConfigError("the payload has no messages")
    # A policy that counts no tokens sees every message as one token long: offsets are indices.
    ends = [
        count_tokens(messages[: i + 1]) if count_tokens else i + 1 for i in range(len(messages))
    ]
    ops = _replay(policy, _segments(messages, ends), reliable_span)
    written = _by_message(ops, ends)
    if written is None:
        written = {"cache_ops": [_as_json(op) for op in ops]}
    return {**payload, **written}


def _replay(
    policy: Callable[[Context], None], segments: Sequence[Segment], reliable_span: int
) -> list[Op]:
    """The ops of every call so far and of the one about to be made."""
    runtime, resident = Runtime(policy, Meter(Limits().steps)), Resident(ALL_NEEDS)
    state, ops = Visibility(), list[Op]()
    calls = [i for i, s in enumerate(segments) if s.kind in ("assistant", "tool_call")]
    for turn, end in enumerate([*calls, len(segments)]):
        if turn:
            state = state.append(segments[calls[turn - 1]].end - state.length)
        snapshot = Snapshot("request", turn, tuple(segments[:end]), state, reliable_span)
        runtime.apply(resident.update(snapshot))
        group = ops_of(copy_context().run(runtime.decide, "request"), snapshot)
        state = state.apply(group).visibility
        ops.extend(group)
    return list(OpHistory(tuple(ops)))


def _segments(messages: Sequence[Message], ends: Sequence[int]) -> list[Segment]:
    calls: dict[str, tuple[str, str]] = {}
    segments: list[Segment] = []
    turn = 0
    for number, (message, (start, end)) in enumerate(
        zip(messages, pairwise([0, *ends]), strict=True)
    ):
        kind = _kind(message)
        if kind in ("assistant", "tool_call"):
            turn += 1
        for call in message.get("tool_calls") or ():
            calls[call["id"]] = (call["function"]["name"], call["function"]["arguments"])
        text = _text(message)
        tool, arguments = calls.get(str(message.get("tool_call_id")), (None, None))
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
