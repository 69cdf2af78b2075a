"""Items of OpenAI's Responses API, shared by Codex and by rollouts of responses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from akv_rsi.tasks.traces.content import (
    Json,
    content_of,
    mapping,
    objects,
    size_of,
    text_of,
    written,
)
from akv_rsi.tasks.traces.events import Asked, Event, Noted, Recorded, Said, Skipped
from akv_rsi.tasks.traces.readers.base import called, said

# The origin of all reasoning, for readers whose format forgets it.
REASONING = "reasoning"
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "web_search_call"})


class Items:
    """Turns items into events. A run of the model's items is one call, whose usage may precede it.

    Arguments that the model's message already spells out (agents that answer in JSON) are not
    counted twice.
    """

    def __init__(self, model: str | None = None) -> None:
        self.model = model
        self._running = False
        self._text = ""
        self._pending: Recorded | None = None
        self._has_usage = False
        self._calls = 0

    def used(self, recorded: Recorded) -> Iterator[Event]:
        """The usage of the call that is running, or else of the next one."""
        if self._running and not self._has_usage:
            self._has_usage = True
            yield Asked(self._name(), recorded)
        else:
            self._pending = recorded

    def interrupt(self) -> None:
        """Whatever comes next begins a new call."""
        self._running = False

    def read(self, item: Mapping[str, Json], time: float | None = None) -> Iterator[Event]:
        """The events of one item."""
        kind, role = text_of(item.get("type")) or "message", item.get("role")
        if kind == "message" and role != "assistant":
            self._running = False
            content = content_of(item.get("content"))
            yield from said("system" if role in ("system", "developer") else "user", content)
        elif kind.endswith("_output"):
            self._running = False
            content = content_of(_output(item))
            number = text_of(item.get("call_id")) or None
            yield from said("tool_result", content, id=number, is_error=_failed(content.text))
        elif kind in ("message", "reasoning") or kind in _CALLS:
            yield from self._ask(time)
            yield from self._answer(kind, item)
        else:
            yield Skipped(f"items of type {kind!r}", size_of(item))

    def _ask(self, time: float | None) -> Iterator[Event]:
        if self._running:
            return
        self._running, self._text, self._calls = True, "", self._calls + 1
        yield Asked(self._name(), self._pending, time, self.model)
        self._has_usage, self._pending = self._pending is not None, None

    def _name(self) -> str:
        return f"call {self._calls}"

    def _answer(self, kind: str, item: Mapping[str, Json]) -> Iterator[Event]:
        if kind == "message":
            content = content_of(item.get("content"))
            self._text += content.text
            yield from said("assistant", content)
        elif kind == "reasoning":
            shown = content_of(item.get("content") or item.get("summary") or [])
            encrypted = bool(item.get("encrypted_content"))
            if encrypted:
                yield Noted("encrypted_reasoning")
                yield Skipped("encrypted reasoning", len(text_of(item.get("encrypted_content"))))
            if shown.text or encrypted:
                yield Said("reasoning", shown.text, encrypted=encrypted, origin=REASONING)
        else:
            name, args = _call(kind, item)
            call = called(name, args, item.get("call_id") or item.get("id"))
            if self._text and _spelled_out(self._text, args):
                yield Noted("calls_repeated_from_the_message")
                yield Skipped("tool calls that repeat the message's text", len(call.text))
                call = Said("tool_call", "", call.id, call.tool, call.args)
            yield call


def _call(kind: str, item: Mapping[str, Json]) -> tuple[str, Json]:
    if kind == "function_call":
        return text_of(item.get("name")), item.get("arguments")
    if kind == "custom_tool_call":
        return text_of(item.get("name")), item.get("input")
    return kind.removesuffix("_call"), item.get("action") or {}


def _output(item: Mapping[str, Json]) -> Json:
    output = item.get("output")
    if isinstance(output, dict):
        return output.get("content") if "content" in output else written(output)
    return output


def _failed(text: str) -> bool:
    start = text[-200:] if '"exit_code":' in text[-200:] else text[:200]
    _, found, code = start.partition('"exit_code":')
    return bool(found) and code.strip()[:1] not in ("0", "n", "")


def _spelled_out(text: str, args: Json) -> bool:
    """Whether every text among the arguments stands in the message, as JSON writes it."""
    try:
        given = json.loads(args) if isinstance(args, str) else args
    except ValueError:
        return False
    texts = [value for value in mapping(given).values() if isinstance(value, str) and value]
    return bool(texts) and all(json.dumps(v, ensure_ascii=False)[1:-1] in text for v in texts)


def instructions(value: Json) -> Iterator[Said]:
    """Instructions, as a string or as an object with a text."""
    text = text_of(value) or text_of(mapping(value).get("text"))
    if text:
        yield Said("system", text)


def input_items(value: Json) -> Iterator[Mapping[str, Json]]:
    """The items of a request's input, which may be a mere string."""
    return iter(({"role": "user", "content": value},)) if isinstance(value, str) else objects(value)
