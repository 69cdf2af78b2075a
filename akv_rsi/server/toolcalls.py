"""Tool calls as models write them into their text: JSON between ``<tool_call>`` tags."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any, NamedTuple

OPEN = "<tool_call>"
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


class Said(NamedTuple):
    """An answer as its text and its tool calls, in the form of OpenAI's API."""

    content: str
    calls: list[dict[str, Any]]


def parse(text: str) -> Said:
    """The calls of an answer; text that is no well-formed call stays text.

    >>> said = parse('Look: <tool_call>{"name": "ls", "arguments": {"path": "."}}</tool_call>')
    >>> said.content, said.calls[0]["function"]
    ('Look:', {'name': 'ls', 'arguments': '{"path": "."}'})
    """
    calls = [call for found in _CALL.findall(text) if (call := _call(found)) is not None]
    if not calls:
        return Said(text, [])
    return Said(_CALL.sub(lambda m: "" if _call(m[1]) else m[0], text).strip(), calls)


def _call(text: str) -> dict[str, Any] | None:
    try:
        said = json.loads(text)
        name, arguments = said["name"], said.get("arguments", {})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if not isinstance(name, str):
        return None
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    function = {"name": name, "arguments": written}
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}
