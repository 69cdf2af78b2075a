"""OpenHands: events, as a list or as the ``history`` of an evaluation's output line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from akv_rsi.tasks.traces.content import (
    Json,
    content_of,
    count,
    mapping,
    objects,
    openai_usage,
    recorded,
    seconds,
    size_of,
    text_of,
    written,
)
from akv_rsi.tasks.traces.events import Asked, Began, Event, Noted, Recorded, Reset, Said, Skipped
from akv_rsi.tasks.traces.readers.base import called, said, tools
from akv_rsi.tasks.traces.source import Head, Source

_SILENT = frozenset(
    {"change_agent_state", "start", "null", "recall", "condensation_request", "stop"}
)


class OpenHands:
    """Actions of the agent, observations that name the action they answer as their ``cause``.

    Actions of one model response share its id: parallel calls. A condensation forgets events and
    puts a summary in their place.
    """

    name = "openhands"

    def detect(self, head: Head) -> bool:
        """See `Reader`."""
        first = head.first
        if isinstance(first.get("history"), list):
            first = next(objects(first["history"]), {})
        elif not head.has("id", "source"):
            return '"tool_call_metadata"' in head.text and '"observation"' in head.text
        return {"id", "source"} <= set(first) and bool({"action", "observation"} & set(first))

    def read(self, source: Source) -> Iterator[Event]:
        """See `Reader`."""
        document, spent = -1, _Spent()
        for item in source.walk({("history",)}):
            if item.document != document:
                document, spent = item.document, _Spent()
                yield Began(str(document))
            key = item.path[0] if item.path else ""
            if isinstance(key, int) or key == "history":
                yield from self._event(mapping(item.value), spent)
            else:
                yield Skipped("metadata", size_of(item.value))

    def _event(self, event: Mapping[str, Json], spent: _Spent) -> Iterator[Event]:
        action, origin = text_of(event.get("action")), str(event.get("id"))
        args = mapping(event.get("args"))
        if "observation" in event:
            yield from self._observation(event, origin)
        elif action == "system":
            yield Said("system", text_of(args.get("content")))
            yield from tools(args.get("tools"))
        elif action == "condensation":
            yield Reset("compaction", _forgotten(args), text_of(args.get("summary")))
        elif action in _SILENT:
            yield Skipped(f"{action} actions", len(text_of(event.get("message"))))
        elif event.get("source") == "user":
            yield Said("user", text_of(args.get("content")) or text_of(event.get("message")))
        elif event.get("source") == "agent":
            yield from self._action(event, args, origin, spent)
        else:
            yield Skipped(f"events of source {event.get('source')!r}", size_of(event))

    def _action(
        self, event: Mapping[str, Json], args: Mapping[str, Json], origin: str, spent: _Spent
    ) -> Iterator[Event]:
        meta = mapping(event.get("tool_call_metadata"))
        response = mapping(meta.get("model_response"))
        usage = spent.since(event, openai_usage(response.get("usage")))
        number = text_of(response.get("id")) or f"event {origin}"
        time, model = seconds(event.get("timestamp")), text_of(response.get("model")) or None
        yield Asked(number, usage, time, model)
        thought = text_of(args.get("thought"))
        if event.get("action") == "message":
            yield Said("assistant", text_of(args.get("content")), origin=origin)
            return
        if thought and event.get("action") != "think":
            yield Said("assistant", thought, origin=origin)
        name = text_of(meta.get("function_name")) or text_of(event.get("action"))
        call_id = text_of(meta.get("tool_call_id")) or f"event {origin}"
        arguments = _arguments(response, call_id)
        if arguments is None:
            given = {k: v for k, v in args.items() if v not in (None, "") and k != "thought"}
            arguments = written(given)
        call = called(name, arguments, call_id)
        yield Said("tool_call", call.text, call_id, call.tool, call.args, origin=origin)

    def _observation(self, event: Mapping[str, Json], origin: str) -> Iterator[Event]:
        kind, extras = event.get("observation"), mapping(event.get("extras"))
        content = content_of(event.get("content"))
        if kind == "recall":
            texts = [
                text_of(extras.get(k))
                for k in ("repo_instructions", "additional_agent_instructions")
            ]
            known = objects(extras.get("microagent_knowledge"))
            texts += [text_of(one.get("content")) for one in known]
            if hosts := extras.get("runtime_hosts"):
                texts.append(written(hosts))
            yield Said("user", "\n".join(filter(None, texts)), origin=origin)
            return
        meta = mapping(event.get("tool_call_metadata"))
        if kind in ("agent_state_changed", "null") or (
            not meta and event.get("source") == "environment"
        ):
            yield Skipped(f"{kind} observations", len(content.text))
            return
        number = text_of(meta.get("tool_call_id")) or f"event {event.get('cause')}"
        failed = (
            kind == "error" or event.get("success") is False or content.text.startswith("ERROR")
        )
        if "truncated" in content.text or "clipped" in content.text:
            yield Noted("tool_output_truncated_by_harness")
        yield from said("tool_result", content, id=number, is_error=failed, origin=origin)


class _Spent:
    """Turns the running totals of `llm_metrics` into the usage of single calls."""

    def __init__(self) -> None:
        self._read = 0

    def since(self, event: Mapping[str, Json], usage: Recorded | None) -> Recorded | None:
        """``usage`` with the cache reads that the totals tell, if they tell any."""
        totals = mapping(mapping(event.get("llm_metrics")).get("accumulated_token_usage"))
        read = count(totals.get("cache_read_tokens"))
        new, self._read = max(0, read - self._read), max(read, self._read)
        if usage is None or usage.caching or not read:
            return usage
        return recorded(usage.usage.uncached, usage.usage.output, new, usage.reasoning)


def _forgotten(args: Mapping[str, Json]) -> frozenset[str]:
    ids = args.get("forgotten_event_ids")
    if not isinstance(ids, list):
        start, end = (
            count(args.get("forgotten_events_start_id")),
            count(args.get("forgotten_events_end_id")),
        )
        ids = range(start, min(end, start + 10**6) + 1)
    return frozenset(map(str, ids))


def _arguments(response: Mapping[str, Json], call_id: str) -> str | None:
    """The arguments of a call as the model wrote them, where its response is stored."""
    for choice in objects(response.get("choices")):
        for call in objects(mapping(choice.get("message")).get("tool_calls")):
            if call.get("id") == call_id:
                return written(mapping(call.get("function")).get("arguments") or "")
    return None
