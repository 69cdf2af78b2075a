"""SWE-agent: ``.traj`` files, JSON with ``history`` (what the model saw) and ``trajectory``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from akv_rsi.tasks.traces.content import Json, content_of, count, mapping, size_of, text_of, written
from akv_rsi.tasks.traces.events import Asked, Began, Event, Noted, Said, Skipped, Totals
from akv_rsi.tasks.traces.readers.base import chat_message, has_calls, said
from akv_rsi.tasks.traces.source import Head, Source


class SweAgent:
    """Function calling and text mode. ``trajectory`` repeats the history, so it is left out.

    In text mode an observation is a user message, and an answer holds its command. Sub-agents have
    histories of their own.
    """

    name = "sweagent"

    def detect(self, head: Head) -> bool:
        """See `Reader`."""
        return head.has("trajectory") and (
            head.has("history") or '"observation"' in head.text or head.path.suffix == ".traj"
        )

    def read(self, source: Source) -> Iterator[Event]:
        """See `Reader`."""
        asked, agent = False, ""
        for item in source.walk({("history",), ("trajectory",)}):
            key = item.path[0] if item.path else ""
            if key == "history":
                message = mapping(item.value)
                if (own := text_of(message.get("agent")) or "main") != agent:
                    agent = own
                    yield Began(agent, beside=True)
                yield from self._message(message, asked)
                asked |= message.get("role") == "assistant" and not message.get("is_demo")
            elif key == "trajectory":
                yield Skipped("trajectory steps, which repeat the history", size_of(item.value))
            elif key == "info":
                stats = mapping(mapping(item.value).get("model_stats"))
                if sent := count(stats.get("tokens_sent")):
                    yield Totals(sent, count(stats.get("tokens_received")))
            elif key == "replay_config":
                if '"last_n_observations"' in written(item.value).replace('\\"', '"'):
                    yield Noted("old_observations_elided_by_harness")
            else:
                yield Skipped("metadata", size_of(item.value))

    def _message(self, message: Mapping[str, Json], asked: bool) -> Iterator[Event]:
        role, content = message.get("role"), content_of(message.get("content"))
        if message.get("is_demo"):
            yield Noted("demonstration_in_prompt")
            yield from said("user", content)
        elif role == "assistant" and not has_calls(message):
            yield Asked()
            yield from self._answer(content.text, text_of(message.get("action")))
            yield from content.skipped
        elif role == "user" and asked:
            yield from said("tool_result", content)
        elif role == "tool":
            numbers = message.get("tool_call_ids") or [message.get("tool_call_id")]
            first = numbers[0] if isinstance(numbers, list) and numbers else None
            yield from said("tool_result", content, id=first if isinstance(first, str) else None)
        else:
            yield from chat_message(message)

    def _answer(self, text: str, action: str) -> Iterator[Event]:
        """An answer in text mode: what comes before its command, and the command with the rest."""
        at = text.find(action.strip()) if action.strip() else -1
        if at < 0:
            yield Said("assistant", text)
            return
        if text[:at]:
            yield Said("assistant", text[:at])
        verb = action.split(maxsplit=1)[0]
        yield Said("tool_call", text[at:], tool=verb, args=action)
