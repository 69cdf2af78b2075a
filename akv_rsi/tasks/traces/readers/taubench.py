"""tau-bench: a list of trials, each with its messages as ``traj``."""

from __future__ import annotations

from collections.abc import Iterator

from akv_rsi.tasks.traces.content import mapping, size_of
from akv_rsi.tasks.traces.events import Began, Event, Skipped
from akv_rsi.tasks.traces.readers.base import chat_message
from akv_rsi.tasks.traces.source import Head, Source


class TauBench:
    """Messages in OpenAI's chat format; neither tools nor usage are stored."""

    name = "openai_chat_taubench"

    def detect(self, head: Head) -> bool:
        """See `Reader`."""
        return "traj" in head.first or (head.has("task_id", "reward") and '"traj"' in head.text)

    def read(self, source: Source) -> Iterator[Event]:
        """See `Reader`."""
        trial: tuple[int, str | int] | None = None
        for item in source.walk({("*",), ("*", "traj"), ("traj",)}):
            path = item.path if item.path and isinstance(item.path[0], int) else (0, *item.path)
            if (item.document, path[0]) != trial:
                trial = (item.document, path[0])
                yield Began(f"{item.document}.{path[0]}" if item.document else str(path[0]))
            key = path[1] if len(path) > 1 else ""
            if key == "traj":
                yield from chat_message(mapping(item.value))
            else:
                yield Skipped("metadata", size_of(item.value))
