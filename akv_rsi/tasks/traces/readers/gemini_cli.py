"""Gemini CLI: a session's ``messages`` of ``user`` and ``gemini``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from akv_rsi.tasks.traces.content import (
    Content,
    Json,
    content_of,
    count,
    mapping,
    objects,
    recorded,
    seconds,
    size_of,
    text_of,
    written,
)
from akv_rsi.tasks.traces.events import Asked, Began, Event, Recorded, Said, Skipped
from akv_rsi.tasks.traces.readers.base import called, said
from akv_rsi.tasks.traces.source import Head, Source


class GeminiCli:
    """A call's tools and their results are inside its message; thoughts are never sent again."""

    name = "gemini_cli"

    def detect(self, head: Head) -> bool:
        """See `Reader`."""
        return '"projectHash"' in head.text + head.tail and '"messages"' in head.text + head.tail

    def read(self, source: Source) -> Iterator[Event]:
        """See `Reader`."""
        yield Began("")
        for item in source.walk({("messages",)}):
            if item.path[:1] == ("messages",):
                yield from self._message(mapping(item.value))
            else:
                yield Skipped("metadata", size_of(item.value))

    def _message(self, message: Mapping[str, Json]) -> Iterator[Event]:
        kind, content = message.get("type"), content_of(message.get("content") or "")
        if kind == "user":
            yield from said("user", content)
        elif kind == "gemini":
            model = text_of(message.get("model")) or None
            yield Asked(
                None, _usage(message.get("tokens")), seconds(message.get("timestamp")), model
            )
            for thought in objects(message.get("thoughts")):
                text = f"{text_of(thought.get('subject'))}\n{text_of(thought.get('description'))}"
                yield Said("reasoning", text, resent=False)
            calls = [*objects(message.get("toolCalls"))]
            if content.text or content.images or not calls:
                yield from said("assistant", content)
            for number, call in enumerate(calls):
                name = text_of(call.get("id")) or f"{message.get('id')}.{number}"
                yield called(call.get("name"), call.get("args"), name)
            for number, call in enumerate(calls):
                name = text_of(call.get("id")) or f"{message.get('id')}.{number}"
                yield from self._result(call, name)
        else:
            yield Skipped(f"messages of type {kind!r}", len(content.text))

    def _result(self, call: Mapping[str, Json], name: str) -> Iterator[Event]:
        if call.get("result") is None:
            return
        failed = call.get("status") == "error"
        yield from said("tool_result", _parts(call["result"]), id=name, is_error=failed)
        if shown := call.get("resultDisplay"):
            yield Skipped("results formatted for the screen", size_of(shown))


def _parts(value: Json) -> Content:
    """The text of a result: parts that hold a function's response, or plain content."""
    content = Content()
    for part in value if isinstance(value, list) else [value]:
        response = mapping(mapping(part).get("functionResponse")).get("response")
        if response is not None:
            output = mapping(response).get("output", response)
            content.text += written(output)
        elif "inlineData" in mapping(part):
            content.images += 1
        else:
            more = content_of(part)
            content.text += more.text
            content.skipped += more.skipped
    return content


def _usage(value: Json) -> Recorded | None:
    tokens = mapping(value)
    prompt = count(tokens.get("input")) + count(tokens.get("tool"))
    thoughts = count(tokens.get("thoughts"))
    if not prompt:
        return None
    return recorded(prompt, count(tokens.get("output")) + thoughts, tokens.get("cached"), thoughts)
