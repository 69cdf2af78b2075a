"""Plain conversations in the format of Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Iterator

from akv_rsi.tasks.traces.content import (
    Json,
    anthropic_usage,
    content_of,
    mapping,
    objects,
    seconds,
    size_of,
    text_of,
)
from akv_rsi.tasks.traces.events import Asked, Began, Event, Said, Skipped
from akv_rsi.tasks.traces.readers.base import said, tools
from akv_rsi.tasks.traces.readers.claude_code import assistant_blocks, user_blocks
from akv_rsi.tasks.traces.source import Head, Source

_BLOCKS = ('"tool_use"', '"tool_result"', '"thinking"')


class AnthropicMessages:
    """An object with ``system``, ``tools`` and ``messages``, or the messages alone."""

    name = "anthropic_messages"

    def detect(self, head: Head) -> bool:
        """See `Reader`."""
        messages = [*objects(head.first.get("messages"))] or [head.first]
        if not {text_of(message.get("role")) for message in messages} <= {"user", "assistant"}:
            return False
        typed = any(f'"type": {b}' in head.text or f'"type":{b}' in head.text for b in _BLOCKS)
        return typed or "system" in head.first

    def read(self, source: Source) -> Iterator[Event]:
        """See `Reader`."""
        document, model = -1, None
        for item in source.walk({("messages",)}):
            if item.document != document:
                document, model = item.document, None
                yield Began(str(document))
            key = item.path[0] if item.path else ""
            if isinstance(key, int) or key == "messages":
                yield from self._message(item.value, model)
            elif key == "system" and item.value:
                yield from said("system", content_of(item.value))
            elif key == "tools":
                yield from tools(item.value)
            elif key == "model":
                model = text_of(item.value) or None
            elif item.value is not None:
                yield Skipped("metadata", size_of(item.value))

    def _message(self, value: Json, model: str | None) -> Iterator[Event]:
        message = mapping(value)
        role = message.get("role")
        if role == "assistant":
            usage = anthropic_usage(message.get("usage"))
            yield Asked(
                text_of(message.get("id")) or None, usage, seconds(message.get("timestamp")), model
            )
            yield from assistant_blocks(message.get("content"))
        elif role == "user":
            yield from user_blocks(message.get("content"))
        elif role == "system":
            yield Said("system", content_of(message.get("content")).text)
        else:
            yield Skipped(f"messages of role {role!r}", size_of(value))
