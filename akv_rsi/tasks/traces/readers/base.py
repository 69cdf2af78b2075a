"""What a reader is, and the messages that several formats share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from akv_rsi.tasks.traces.content import (
    Content,
    Json,
    content_of,
    mapping,
    objects,
    size_of,
    text_of,
    written,
)
from akv_rsi.tasks.traces.events import Asked, Event, Recorded, Said, Skipped
from akv_rsi.tasks.traces.source import Head, Source
from akv_rsi.types import SegmentKind


class Reader(Protocol):
    """Knows one format. It keeps no state between files."""

    @property
    def name(self) -> str:
        """The format's name, as users write it."""
        ...

    def detect(self, head: Head) -> bool:
        """Whether a file with this head is in the format."""
        ...

    def read(self, source: Source) -> Iterator[Event]:
        """The file's events, in order; damage goes to ``source.problems``."""
        ...


def said(kind: SegmentKind, content: Content, **more: Json) -> Iterator[Event]:
    """``content`` as one event, and what was left out of it. An empty one still is a message."""
    yield Said(kind, content.text, images=content.images, **more)
    yield from content.skipped


def called(name: Json, args: Json, number: Json = None) -> Said:
    """A tool call; ``args`` are an object, or the JSON the model wrote."""
    tool, arguments = text_of(name) or "?", written(args if args is not None else "")
    call_id = number if isinstance(number, str) and number else None
    return Said("tool_call", f"{tool} {arguments}", id=call_id, tool=tool, args=arguments)


def chat_message(
    message: Mapping[str, Json], recorded: Recorded | None = None, time: float | None = None
) -> Iterator[Event]:
    """A message of OpenAI's chat format; one of the assistant is an LLM call."""
    role = message.get("role")
    content = content_of(message.get("content"))
    if role == "assistant":
        yield Asked(recorded=recorded, time=time)
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        if isinstance(reasoning, str) and reasoning:
            yield Said("reasoning", reasoning, resent=False)
        if content.text or content.images or not has_calls(message):
            yield from said("assistant", content)
        else:
            yield from content.skipped
        yield from _malformed(message.get("tool_calls"))
        for call in objects(message.get("tool_calls")):
            function = mapping(call.get("function"))
            yield called(function.get("name"), function.get("arguments"), call.get("id"))
        if function := mapping(message.get("function_call")):
            yield called(function.get("name"), function.get("arguments"))
    elif role in ("tool", "function"):
        number, tool = text_of(message.get("tool_call_id")), text_of(message.get("name"))
        yield from said("tool_result", content, id=number or None, tool=tool or None)
    elif role in ("system", "developer"):
        yield from said("system", content)
    elif role == "user":
        yield from said("user", content)
    else:
        yield Skipped(f"messages of role {role!r}", len(content.text))


def _malformed(value: Json) -> Iterator[Skipped]:
    """What stands among tool calls and is none."""
    rows = value if isinstance(value, list) else [value] if value else []
    odd = [row for row in rows if not isinstance(row, dict) or row is value]
    if odd:
        yield Skipped("tool calls that are no objects", sum(map(size_of, odd)), len(odd))


def has_calls(message: Mapping[str, Json]) -> bool:
    """Whether a chat message calls tools."""
    return bool(message.get("tool_calls") or message.get("function_call"))


def tools(value: Json) -> Iterator[Said]:
    """Tool schemas, if there are any, as the JSON that is sent."""
    if value:
        yield Said("tools", written(value))
