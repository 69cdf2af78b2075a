"""General-AgentBench: a ``trace`` of chat ``messages``, with usage in ``rounds``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from akv_rsi.tasks.traces.content import count, mapping, recorded, size_of, text_of, written
from akv_rsi.tasks.traces.events import Amended, Began, Event, Noted, Skipped
from akv_rsi.tasks.traces.readers.base import chat_message
from akv_rsi.tasks.traces.source import Head, Source

# A user who says the same so often is the harness, spending a budget.
NUDGES = 5


class AgentBench:
    """Round ``k`` is the ``k``-th answer; the last may be missing. ``steps`` repeat messages."""

    name = "general_agentbench"

    def detect(self, head: Head) -> bool:
        """See `Reader`."""
        return head.has("benchmark", "trace") or (
            head.has("trace") and "messages" in mapping(head.first["trace"])
        )

    def read(self, source: Source) -> Iterator[Event]:
        """See `Reader`."""
        yield Began("")
        users: Counter[str] = Counter()
        answers: list[int] = []
        for item in source.walk({("trace",), ("trace", "messages"), ("trace", "rounds")}):
            key = item.path[1] if len(item.path) > 1 else ""
            if item.path[:1] != ("trace",):
                yield Skipped("metadata", size_of(item.value))
            elif key == "messages":
                message = mapping(item.value)
                if message.get("role") == "user":
                    users[text_of(message.get("content"))] += 1
                elif message.get("role") == "assistant":
                    answers.append(hash(written(message.get("content") or "")))
                yield from chat_message(message)
            elif key == "rounds":
                one = mapping(item.value)
                prompt, output = count(one.get("prompt_tokens")), count(one.get("output_tokens"))
                usage = recorded(prompt, output) if prompt else None
                number = item.path[2] if len(item.path) > 2 else 0
                number = number if isinstance(number, int) else 0
                reasoning = text_of(one.get("reasoning"))
                if answers[number : number + 1] == [hash(reasoning)]:
                    yield Skipped("reasoning that repeats the message", len(reasoning))
                    reasoning = ""
                yield Amended(number, usage, reasoning)
            else:
                what = "steps, which repeat the messages" if key == "steps" else "metadata"
                yield Skipped(what, size_of(item.value))
        if any(times >= NUDGES for times in users.values()):
            yield Noted("injected_user_nudges")
