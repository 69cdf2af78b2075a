"""Rollouts of OpenAI's Responses API: a request's parameters and the response, one a line."""

from __future__ import annotations

from collections.abc import Iterator

from akv_rsi.tasks.traces.content import Json, count, mapping, objects, size_of, text_of
from akv_rsi.tasks.traces.events import Began, Event, Noted, Skipped, Totals
from akv_rsi.tasks.traces.readers.base import tools
from akv_rsi.tasks.traces.readers.responses import Items, input_items, instructions
from akv_rsi.tasks.traces.source import Head, Source


class OpenAIResponses:
    """``response.output`` holds many calls and their results; the usage is their sum."""

    name = "openai_responses"

    def detect(self, head: Head) -> bool:
        """See `Reader`."""
        return head.has("responses_create_params") or head.has("input", "output", "object")

    def read(self, source: Source) -> Iterator[Event]:
        """See `Reader`."""
        for number, line in source.records():
            yield Began(str(number - 1))
            request = mapping(line.get("responses_create_params") or line)
            response = mapping(line.get("response") or line)
            yield from instructions(request.get("instructions"))
            yield from tools(request.get("tools"))
            items = Items(text_of(response.get("model")) or None)
            opening = [*input_items(request.get("input"))]
            if not opening:
                yield Noted("prompt_missing")
            for item in opening:
                yield from items.read(item)
            items.interrupt()
            for item in objects(response.get("output")):
                yield from items.read(item)
            yield from _totals(response.get("usage"))
            rest = {k: v for k, v in line.items() if k not in _READ}
            yield Skipped("metadata", size_of(rest))


def _totals(usage: Json) -> Iterator[Event]:
    total = mapping(usage)
    if sent := count(total.get("input_tokens")):
        yield Totals(sent, count(total.get("output_tokens")))


_READ = frozenset(
    {"responses_create_params", "response", "input", "output", "tools", "instructions"}
)
