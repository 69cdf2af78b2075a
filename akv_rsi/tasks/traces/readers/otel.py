"""OpenTelemetry: OTLP JSON with the GenAI semantic conventions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from akv_rsi.tasks.traces.content import (
    Json,
    content_of,
    count,
    mapping,
    objects,
    seconds,
    size_of,
    text_of,
    written,
)
from akv_rsi.tasks.traces.events import Asked, Began, Event, Recorded, Reset, Said, Skipped
from akv_rsi.tasks.traces.readers.base import called, said, tools
from akv_rsi.tasks.traces.source import Head, Source
from akv_rsi.types import SegmentKind, Usage

_CHAT = frozenset({"chat", "text_completion", "generate_content"})
_KINDS: Mapping[str, SegmentKind] = {"assistant": "assistant", "system": "system"}
_SPANS = ("resourceSpans", "*", "scopeSpans", "*", "spans")


class _Span(NamedTuple):
    start: float
    values: Mapping[str, Json]
    line: int


class OpenTelemetry:
    """Each ``chat`` span holds a whole prompt; what it adds to the one before is what is new.

    Spans of one ``gen_ai.conversation.id`` (else of one trace and agent) are a conversation. A
    prompt that does not begin with the one before it is a rewritten context. Attributes that were
    cut are problems of the file.
    """

    name = "otel_genai"

    def detect(self, head: Head) -> bool:
        """See `Reader`."""
        return '"resourceSpans"' in head.text

    def read(self, source: Source) -> Iterator[Event]:
        """See `Reader`."""
        conversations: dict[str, list[_Span]] = {}
        opened = {_SPANS[:n] for n in range(1, len(_SPANS) + 1)}
        for item in source.walk(opened):
            if len(item.path) <= len(_SPANS) or item.path[4] != "spans":
                continue
            span = mapping(item.value)
            values = {text_of(a.get("key")): _value(a.get("value")) for a in _attributes(span)}
            operation = text_of(
                values.get("gen_ai.operation.name") or text_of(span.get("name")).partition(" ")[0]
            )
            if operation not in _CHAT:
                yield Skipped(f"{operation} spans", size_of(span))
                continue
            agent = values.get("gen_ai.agent.name")
            name = values.get("gen_ai.conversation.id") or f"{span.get('traceId')} {agent or ''}"
            start = seconds(span.get("startTimeUnixNano")) or 0.0
            conversations.setdefault(str(name).strip(), []).append(_Span(start, values, item.line))
        for name, spans in conversations.items():
            yield Began(name)
            yield from self._conversation(sorted(spans, key=lambda span: span.start), source)

    def _conversation(self, spans: list[_Span], source: Source) -> Iterator[Event]:
        known: list[Json] = []
        for number, span in enumerate(spans):
            prompt = _messages(span, "gen_ai.input.messages", source)
            answer = _messages(span, "gen_ai.output.messages", source)
            if number == 0:
                yield from self._opening(span)
            elif prompt[: len(known)] != known:
                yield Reset("edit")
                known = []
            for message in prompt[len(known) :]:
                yield from _said(message)
            model = text_of(span.values.get("gen_ai.request.model")) or None
            yield Asked(None, _usage(span.values), span.start or None, model)
            for message in answer:
                yield from _said(message)
            known = [*prompt, *(_bare(message) for message in answer)]

    def _opening(self, span: _Span) -> Iterator[Event]:
        system = _decoded(span.values.get("gen_ai.system_instructions"))
        if system:
            parts = system if isinstance(system, list) else [system]
            yield Said("system", "\n".join(_text(part) for part in parts))
        yield from tools(_decoded(span.values.get("gen_ai.tool.definitions")))


def _attributes(span: Mapping[str, Json]) -> Iterator[Mapping[str, Json]]:
    """A span's attributes; some instrumentations put the messages on an event of the span."""
    yield from objects(span.get("attributes"))
    for event in objects(span.get("events")):
        yield from objects(event.get("attributes"))


def _value(value: Json) -> Json:
    """A typed attribute's value."""
    typed = mapping(value)
    if "arrayValue" in typed:
        return [_value(v) for v in objects(mapping(typed["arrayValue"]).get("values"))]
    if "kvlistValue" in typed:
        pairs = objects(mapping(typed["kvlistValue"]).get("values"))
        return {text_of(pair.get("key")): _value(pair.get("value")) for pair in pairs}
    return next(iter(typed.values()), None)


def _decoded(value: Json) -> Json:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _messages(span: _Span, key: str, source: Source) -> list[Json]:
    value = _decoded(span.values.get(key))
    if isinstance(value, str):
        source.problems.add(
            span.line, f"{key} is no JSON: it was cut after {len(value):,} characters"
        )
        return []
    return [*objects(value)]


def _bare(message: Json) -> Json:
    """An output message as it comes back in the next prompt."""
    return {key: value for key, value in message.items() if key != "finish_reason"}


def _text(part: Json) -> str:
    return text_of(mapping(part).get("content")) or content_of(part).text


def _said(message: Mapping[str, Json]) -> Iterator[Event]:
    """The parts of one message."""
    role = message.get("role")
    for part in objects(message.get("parts")):
        kind = part.get("type")
        if kind == "tool_call":
            yield called(part.get("name"), part.get("arguments"), part.get("id"))
        elif kind == "tool_call_response":
            number = text_of(part.get("id")) or None
            result = part.get("response", part.get("result"))
            yield from said("tool_result", content_of(written(result)), id=number)
        elif kind == "reasoning":
            yield Said("reasoning", _text(part))
        elif kind == "text":
            yield Said(_KINDS.get(text_of(role), "user"), _text(part))
        else:
            yield Skipped(f"parts of type {kind!r}", size_of(part))


def _usage(values: Mapping[str, Json]) -> Recorded | None:
    prompt = count(values.get("gen_ai.usage.input_tokens"))
    output = count(values.get("gen_ai.usage.output_tokens"))
    read = values.get("gen_ai.usage.cache_read.input_tokens")
    write = count(values.get("gen_ai.usage.cache_creation.input_tokens"))
    if not prompt:
        return None
    cached = min(count(read), prompt)
    fresh = prompt - cached
    return Recorded(Usage(1, fresh, cached, min(write, fresh) or fresh, output), read is not None)
