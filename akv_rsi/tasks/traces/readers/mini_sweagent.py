"""mini-swe-agent: ``.traj.json`` files with ``messages`` and ``trajectory_format``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from akv_rsi.tasks.traces.content import (
    Json,
    content_of,
    mapping,
    objects,
    openai_usage,
    seconds,
    size_of,
    text_of,
    written,
)
from akv_rsi.tasks.traces.events import Asked, Began, Event, Noted, Said, Skipped
from akv_rsi.tasks.traces.readers.base import called, chat_message, has_calls, said
from akv_rsi.tasks.traces.source import Head, Source

_COMMAND = re.compile(r"```(?:bash|sh|mswea_bash_command)?[ \t]*\n(.*?)\n?```", re.DOTALL)
_FAILED = re.compile(r"<returncode>(?!0<)")


class MiniSweAgent:
    """One shell command per answer, in a fenced block; later versions use tool calls.

    Reasoning is stored beside the answer and never sent again. What follows the last answer (the
    submission) is in no prompt.
    """

    name = "mini_swe_agent"

    def detect(self, head: Head) -> bool:
        """See `Reader`."""
        return '"trajectory_format": "mini-swe-agent' in head.text + head.tail or (
            head.has("info", "messages") and '"mini_version"' in head.text
        )

    def read(self, source: Source) -> Iterator[Event]:
        """See `Reader`."""
        yield Began("")
        asked = 0
        for item in source.walk({("messages",)}):
            key = item.path[0] if item.path else ""
            if key == "messages":
                message = mapping(item.value)
                yield from self._message(message, asked)
                asked += message.get("role") == "assistant"
            else:
                yield Skipped("metadata", size_of(item.value))

    def _message(self, message: Mapping[str, Json], asked: int) -> Iterator[Event]:
        role, content = message.get("role"), content_of(message.get("content"))
        if role == "assistant":
            yield from self._answer(message, content.text)
            yield from content.skipped
        elif role == "exit" or (role == "user" and asked and not content.text):
            yield Skipped("exit messages", len(content.text))
        elif (role == "user" and asked) or role == "tool":
            if "<output_head>" in content.text:
                yield Noted("tool_output_truncated_by_harness")
            failed = bool(_FAILED.match(content.text.lstrip()))
            number = text_of(message.get("tool_call_id")) or None
            yield from said("tool_result", content, id=number, is_error=failed)
        else:
            yield from chat_message(message)

    def _answer(self, message: Mapping[str, Json], text: str) -> Iterator[Event]:
        extra = mapping(message.get("extra"))
        response = mapping(extra.get("response"))
        yield Asked(
            id=text_of(response.get("id")) or None,
            recorded=openai_usage(response.get("usage")),
            time=seconds(response.get("created")),
            model=text_of(response.get("model")) or None,
        )
        for choice in objects(response.get("choices")):
            inner = mapping(choice.get("message"))
            if reasoning := inner.get("reasoning") or inner.get("reasoning_content"):
                yield Noted("reasoning_stored_but_not_resent")
                yield Said("reasoning", written(reasoning), resent=False)
        if has_calls(message):
            if text:
                yield Said("assistant", text)
            for call in objects(message.get("tool_calls")):
                function = mapping(call.get("function"))
                yield called(function.get("name"), function.get("arguments"), call.get("id"))
            return
        command = _COMMAND.search(text)
        at = command.start() if command else len(text)
        if text[:at] or not command:
            yield Said("assistant", text[:at])
        if command:
            yield Said("tool_call", text[at:], tool="bash", args=command.group(1))
