"""Codex: rollouts, JSON Lines of ``timestamp``, ``type`` and ``payload``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from akv_rsi.tasks.traces.content import (
    Json,
    mapping,
    objects,
    openai_usage,
    seconds,
    size_of,
    text_of,
)
from akv_rsi.tasks.traces.events import Asked, Began, Event, Reset, Said, Skipped
from akv_rsi.tasks.traces.readers.responses import REASONING, Items, instructions
from akv_rsi.tasks.traces.source import Head, Source

_TYPES = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})


class Codex:
    """``response_item`` lines are the conversation; ``event_msg`` lines repeat it for the screen.

    ``token_count`` events hold the usage, each one at least twice: before the items of its call or
    after them. Tools are never stored, and reasoning is encrypted.
    """

    name = "codex"

    def detect(self, head: Head) -> bool:
        """See `Reader`."""
        return any(
            text_of(line.get("type")) in _TYPES and "payload" in line for line in head.lines[:5]
        )

    def read(self, source: Source) -> Iterator[Event]:
        """See `Reader`."""
        yield Began("")
        items, totals, reasoned = Items(), None, False
        for _, line in source.records():
            kind, payload = line.get("type"), mapping(line.get("payload"))
            if kind == "response_item":
                if _is_user(payload) and reasoned:
                    # The provider drops the reasoning of a turn when the user speaks again.
                    yield Reset("reasoning_dropped", frozenset((REASONING,)))
                reasoned = payload.get("type") == "reasoning" or (
                    reasoned and not _is_user(payload)
                )
                yield from items.read(payload, seconds(line.get("timestamp")))
            elif kind == "event_msg" and payload.get("type") == "token_count":
                info = mapping(payload.get("info"))
                new = info.get("total_token_usage") or info.get("last_token_usage")
                usage = openai_usage(info.get("last_token_usage"))
                if new == totals or usage is None:
                    yield Skipped("repeated or empty token counts")
                    continue
                totals = new
                yield from items.used(usage)
            elif kind == "compacted":
                yield Reset("compaction")
                yield from self._replacement(payload, items)
            elif kind == "session_meta":
                yield from instructions(
                    payload.get("instructions") or payload.get("base_instructions")
                )
            else:
                items.model = text_of(payload.get("model")) or items.model
                what = f"{kind}/{payload.get('type')}" if "type" in payload else str(kind)
                yield Skipped(f"{what} lines", size_of(payload))

    def _replacement(self, payload: Mapping[str, Json], items: Items) -> Iterator[Event]:
        """What a compaction leaves: a history, else its summary alone."""
        history = [*objects(payload.get("replacement_history"))]
        for item in history:
            for event in items.read(item):
                # No call of its own: what the model once wrote is part of the new prompt.
                if not isinstance(event, Asked):
                    yield event
        items.interrupt()
        summary = text_of(payload.get("message"))
        if summary and not history:
            yield Said("user", summary)


def _is_user(item: Mapping[str, Json]) -> bool:
    return item.get("role") == "user"
