"""Plain conversations in OpenAI's chat format: a list of messages, or an object that holds one."""

from __future__ import annotations

from collections.abc import Iterator

from akv_rsi.tasks.traces.content import mapping, objects, openai_usage, seconds, size_of
from akv_rsi.tasks.traces.events import Began, Event, Skipped
from akv_rsi.tasks.traces.readers.base import chat_message, tools
from akv_rsi.tasks.traces.source import Head, Source


class OpenAIChat:
    """One document a file, or one a line."""

    name = "openai_chat"

    def detect(self, head: Head) -> bool:
        """See `Reader`."""
        messages = head.first.get("messages")
        first = next(objects(messages), head.first)
        return "role" in first and ("content" in first or "tool_calls" in first)

    def read(self, source: Source) -> Iterator[Event]:
        """See `Reader`."""
        document = -1
        for item in source.walk({("messages",)}):
            if item.document != document:
                document = item.document
                yield Began(str(document))
            key = item.path[0] if item.path else ""
            if isinstance(key, int) or key == "messages":
                message = mapping(item.value)
                usage = openai_usage(message.get("usage"))
                yield from chat_message(message, usage, seconds(message.get("timestamp")))
            elif key == "tools":
                yield from tools(item.value)
            else:
                yield Skipped("metadata", size_of(item.value))
