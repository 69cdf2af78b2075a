"""Kimi CLI: its ``wire.jsonl``, flat records of messages and of the events of its loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from akv_rsi.tasks.traces.content import (
    Json,
    content_of,
    count,
    mapping,
    seconds,
    size_of,
    text_of,
    written,
)
from akv_rsi.tasks.traces.events import Asked, Began, Event, Noted, Recorded, Reset, Said, Skipped
from akv_rsi.tasks.traces.readers.base import called, said, tools
from akv_rsi.tasks.traces.source import Head, Source
from akv_rsi.types import Usage

_TYPES = frozenset({"context.append_message", "context.append_loop_event", "llm.request"})


class KimiCli:
    """A step of the loop is a call. Requests that are tried again are one call, and counted."""

    name = "kimi_cli"

    def detect(self, head: Head) -> bool:
        """See `Reader`."""
        types = {text_of(line.get("type")) for line in head.lines}
        return bool(types & _TYPES) or ("metadata" in types and "protocol_version" in head.text)

    def read(self, source: Source) -> Iterator[Event]:
        """See `Reader`."""
        once, agent = _Once(), "main"
        yield Began(agent)
        for _, line in source.records():
            if (own := text_of(line.get("agentId")) or "main") != agent:
                agent = own
                yield Began(agent, beside=True)
            kind = line.get("type")
            if kind == "context.append_message":
                yield from self._message(mapping(line.get("message")))
            elif kind == "context.append_loop_event":
                yield from self._event(mapping(line.get("event")), seconds(line.get("time")))
            elif kind in ("config.update", "profile.bind"):
                yield from once.said("system", text_of(line.get("systemPrompt")))
            elif kind == "llm.tools_snapshot":
                for schemas in tools(line.get("tools")):
                    yield from once.said("tools", schemas.text)
            elif kind == "llm.request" and "attempt" in line:
                yield Skipped("requests tried again")
            elif kind == "context.apply_compaction":
                yield Reset("compaction", summary=text_of(line.get("summary")))
            elif kind in ("context.clear", "context.undo"):
                yield Reset("edit")
            else:
                yield Skipped(f"{kind} records", size_of(line))

    def _message(self, message: Mapping[str, Json]) -> Iterator[Event]:
        role, content = message.get("role"), content_of(message.get("content"))
        if role == "assistant":
            yield Asked()
            yield from said("assistant", content)
        elif role == "tool":
            number = text_of(message.get("toolCallId")) or None
            yield from said("tool_result", content, id=number)
        elif role == "system":
            yield from said("system", content)
        else:
            yield from said("user", content)

    def _event(self, event: Mapping[str, Json], time: float | None) -> Iterator[Event]:
        kind, number = event.get("type"), text_of(event.get("toolCallId")) or None
        part = mapping(event.get("part"))
        if kind == "step.begin":
            yield Asked(text_of(event.get("uuid")) or None, time=time)
        elif kind == "content.part" and part.get("type") == "think":
            yield Said("reasoning", text_of(part.get("think")))
        elif kind == "content.part":
            yield from said("assistant", content_of([part]))
        elif kind == "tool.call":
            yield called(event.get("name"), event.get("args", event.get("arguments")), number)
        elif kind == "tool.result":
            result = event.get("result", event.get("output"))
            output = mapping(result).get("output", result)
            content = content_of(output if isinstance(output, str | list) else written(output))
            failed = mapping(result).get("isError") is True
            yield from said("tool_result", content, id=number, is_error=failed)
        elif kind == "step.end":
            step = text_of(event.get("uuid")) or text_of(event.get("stepUuid")) or None
            if step and (usage := _usage(event.get("usage"))):
                yield Asked(step, usage)
        else:
            yield Skipped(f"{kind} events", size_of(event))


class _Once:
    """The system prompt and the tools are repeated; only a change would matter."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def said(self, kind: Json, text: str) -> Iterator[Event]:
        """``text``, unless it is known."""
        if not text:
            return
        if kind in self._known:
            yield Skipped(f"{kind} prompt again", len(text))
            if text != self._known[kind]:
                yield Noted(f"{kind}_changed_later")
            return
        self._known[kind] = text
        yield Said(kind, text)


def _usage(value: Json) -> Recorded | None:
    usage = mapping(value)
    read, write = count(usage.get("inputCacheRead")), count(usage.get("inputCacheCreation"))
    fresh = count(usage.get("inputOther")) + write
    if not fresh + read:
        return None
    return Recorded(Usage(1, fresh, read, fresh, count(usage.get("output"))))
