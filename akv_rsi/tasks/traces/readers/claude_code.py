"""Claude Code: a session's JSON Lines, and those of its sub-agents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from akv_rsi.tasks.traces.content import (
    Json,
    anthropic_usage,
    content_of,
    count,
    mapping,
    objects,
    seconds,
    size_of,
    text_of,
)
from akv_rsi.tasks.traces.events import Asked, Began, Event, Noted, Reset, Said, Skipped
from akv_rsi.tasks.traces.readers.base import called, said
from akv_rsi.tasks.traces.source import Head, Source

HOUR, FIVE_MINUTES = 3600.0, 300.0
_MAIN = "main"


class ClaudeCode:
    """One response spans several lines of one ``message.id``, mixed with the results of its calls.

    The system prompt and the tools are never stored. ``progress`` lines, file snapshots and the
    ``toolUseResult`` beside a result are for the screen. A sub-agent has a file of its own, or, in
    older versions, lines marked ``isSidechain`` inside its parent's.
    """

    name = "claude_code"

    def detect(self, head: Head) -> bool:
        """See `Reader`."""
        return any(
            ("sessionId" in line and "type" in line and ("message" in line or "uuid" in line))
            or line.get("type") in ("file-history-snapshot", "queue-operation", "progress")
            for line in head.lines
        ) or ('"sessionId"' in head.text and '"parentUuid"' in head.text)

    def read(self, source: Source) -> Iterator[Event]:
        """See `Reader`."""
        lanes, lane = _Lanes(), _MAIN
        yield Began(_MAIN)
        if source.path.name.startswith("agent-acompact") or "__agent-acompact" in source.path.name:
            yield Noted("compaction_call")
        for _, line in source.records():
            if (own := lanes.of(line)) != lane:
                lane = own
                yield Began(lane, beside=True)
            kind = line.get("type")
            if kind == "assistant":
                yield from self._assistant(line)
            elif kind == "user":
                yield from self._user(line)
            elif kind == "system" and line.get("subtype") == "compact_boundary":
                yield Reset("compaction")
            elif kind == "system" and line.get("subtype") == "microcompact_boundary":
                ids = mapping(line.get("microcompactMetadata")).get("compactedToolIds")
                yield Reset("edit", frozenset(map(str, ids if isinstance(ids, list) else ())))
            else:
                what = f"{kind}/{line['subtype']}" if "subtype" in line else str(kind)
                yield Skipped(f"{what} lines", size_of(line))

    def _assistant(self, line: Mapping[str, Json]) -> Iterator[Event]:
        message = mapping(line.get("message"))
        if message.get("model") == "<synthetic>" or line.get("isApiErrorMessage"):
            yield Skipped("error messages made by the client", size_of(message))
            return
        usage = mapping(message.get("usage"))
        created = mapping(usage.get("cache_creation"))
        ttl = HOUR if count(created.get("ephemeral_1h_input_tokens")) else FIVE_MINUTES
        number = text_of(message.get("id")) or text_of(line.get("requestId")) or None
        time, model = seconds(line.get("timestamp")), text_of(message.get("model")) or None
        yield Asked(number, anthropic_usage(usage), time, model, ttl)
        yield from assistant_blocks(message.get("content"))

    def _user(self, line: Mapping[str, Json]) -> Iterator[Event]:
        if "toolUseResult" in line:
            size = size_of(line["toolUseResult"])
            yield Skipped("results formatted for the screen, which repeat the result", size)
        if line.get("isMeta"):
            yield Noted("injected_messages")
        yield from user_blocks(mapping(line.get("message")).get("content"))


def assistant_blocks(content: Json) -> Iterator[Event]:
    """What an assistant message of Anthropic's API holds."""
    if isinstance(content, str):
        yield Said("assistant", content)
        return
    for block in objects(content):
        kind = block.get("type")
        if kind == "thinking":
            yield Said("reasoning", text_of(block.get("thinking")))
            if signature := text_of(block.get("signature")):
                yield Skipped("signatures of reasoning", len(signature))
        elif kind == "redacted_thinking":
            yield Skipped("redacted reasoning", len(text_of(block.get("data"))))
        elif kind in ("tool_use", "server_tool_use"):
            yield called(block.get("name"), block.get("input"), block.get("id"))
        elif isinstance(kind, str) and kind.endswith("_tool_result"):
            yield from result_block(block)
        else:
            yield from said("assistant", content_of([block]))


def user_blocks(content: Json) -> Iterator[Event]:
    """What a user message of Anthropic's API holds: text, images, and the results of tools."""
    if not isinstance(content, list):
        yield from said("user", content_of(content))
        return
    own = []
    for block in content:
        if isinstance(block, dict) and block.get("type") == "tool_result":
            yield from result_block(block)
        else:
            own.append(block)
    if own:
        yield from said("user", content_of(own))


def result_block(block: Mapping[str, Json]) -> Iterator[Event]:
    """One result of a tool."""
    number = text_of(block.get("tool_use_id")) or None
    content = content_of(block.get("content"))
    failed = block.get("is_error") is True
    if content.text.startswith("<persisted-output>"):
        yield Noted("tool_output_truncated_by_harness")
    yield from said("tool_result", content, id=number, is_error=failed, origin=number)


class _Lanes:
    """Which conversation a line belongs to: the main one, or that of a sub-agent."""

    def __init__(self) -> None:
        self._roots: dict[str, str] = {}
        self._first: str | None = None

    def of(self, line: Mapping[str, Json]) -> str:
        """The lane's name. A file of one sub-agent alone is its own main conversation."""
        if line.get("isSidechain") is not True:
            self._first = self._first or _MAIN
            return _MAIN
        lane = text_of(line.get("agentId"))
        if not lane:
            # Older versions name no agent: the chain of parents tells them apart.
            uuid, parent = text_of(line.get("uuid")), text_of(line.get("parentUuid"))
            lane = self._roots.get(parent, uuid)
            self._roots[uuid] = lane
        self._first = self._first or lane
        return _MAIN if lane == self._first else f"agent {lane}"
