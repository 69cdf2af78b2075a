"""What became of a conversation's cache: the record behind ``GET /v1/sessions/{id}``.

Conversations are known by how they open: the same opening of the same tenant is the same session,
and its record is that of its latest request. Records are for people who look; no answer depends on
them.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from akv_rsi.server.origins import Origin
from akv_rsi.server.planner import Plan, Planner
from akv_rsi.server.prompt import Prompt
from akv_rsi.server.segments import segments
from akv_rsi.types import Op, OpHistory, Range, Repos


@dataclass(frozen=True, slots=True)
class Session:
    """The latest request of a conversation; ``plan`` is the server's policy's part in it."""

    tenant: str
    prompt: Prompt
    history: OpHistory
    plan: Plan | None
    usage: dict[str, Any]


class Sessions:
    """The latest sessions, the least recently used going first: in number, and in all their tokens.

    The latest one is kept, however long it is.
    """

    def __init__(self, capacity: int, tokens: int) -> None:
        self._capacity = capacity
        self._most = tokens
        self._tokens = 0
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def put(self, name: str, session: Session) -> None:
        """Records a request."""
        if name in self._sessions:
            self._drop(name)
        self._sessions[name] = session
        self._tokens += _length(session)
        while len(self._sessions) > self._capacity or (
            self._tokens > self._most and len(self._sessions) > 1
        ):
            self._drop(next(iter(self._sessions)))

    def get(self, name: str, tenant: str) -> Session | None:
        """The session, if it is that tenant's."""
        found = self._sessions.get(name)
        return found if found is not None and found.tenant == tenant else None

    def _drop(self, name: str) -> None:
        self._tokens -= _length(self._sessions.pop(name))


def _length(session: Session) -> int:
    return len(session.prompt.rendered.tokens)


def session_id(tenant: str, prompt: Prompt) -> str:
    """The name of a conversation: a digest of its tenant and its opening."""
    answers = prompt.answers
    end = prompt.rendered.starts[answers[0]] if answers else prompt.length
    name = tenant.encode()
    opening = array("q", prompt.rendered.tokens[:end]).tobytes()
    return hashlib.sha256(b"session %d %s " % (len(name), name) + opening).hexdigest()[:24]


def described(name: str, session: Session, planner: Planner | None) -> dict[str, Any]:
    """A session as JSON: its messages, and each op with the messages it touches and its origin."""
    rendered, lines = session.prompt.rendered, list[str]()
    found: Mapping[Op, Sequence[Origin]] = {}
    if planner is not None and session.plan is not None:
        lines = planner.spec.source.splitlines()
        found = planner.origins(segments(session.prompt), session.plan)
    return {
        "id": name,
        "policy": planner.spec.name if planner is not None else None,
        "messages": [
            {"index": i, "role": m.role, "tokens": list(rendered.span(i))}
            for i, m in enumerate(session.prompt.messages)
        ],
        "ephemeral": [
            {"message": m.message, "tokens": [m.start, m.end]} for m in session.prompt.marks
        ],
        "ops": [
            _op(op, session.prompt) | _by(found.get(op), lines, session.prompt)
            for op in session.history
        ],
        "policy_failures": [
            {"call": call, "reason": why}
            for call, why in (session.plan.failures if session.plan else ())
        ],
        "usage": session.usage,
    }


def _op(op: Op, prompt: Prompt) -> dict[str, Any]:
    """An op, with the messages that it touches."""
    out: dict[str, Any] = {"op": type(op).__name__.lower(), "boundary": op.boundary}
    if isinstance(op, Repos):
        return out
    return out | {"ranges": [list(r) for r in op.ranges], "messages": _touched(op.ranges, prompt)}


def _touched(ranges: Sequence[Range], prompt: Prompt) -> list[int]:
    spans = [prompt.rendered.span(i) for i in range(len(prompt.messages))]
    return [
        i for i, (low, high) in enumerate(spans) if any(s < high and low < e for s, e in ranges)
    ]


def _by(found: Sequence[Origin] | None, lines: Sequence[str], prompt: Prompt) -> dict[str, Any]:
    """Whose op it is; of a policy's, the lines that asked for it, each with its messages."""
    if found is None:
        return {"by": "request"}
    source = [
        {
            "line": origin.line,
            "text": lines[origin.line - 1].strip(),
            "messages": _touched(origin.ranges, prompt),
        }
        for origin in found
    ]
    return {"by": "policy", "source": source}
