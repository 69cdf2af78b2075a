"""Agents that talk to a server at once: what each way of keeping a context costs them in time.

Agents replay recorded trajectories: after each call the tool's recorded answer follows, after a
delay, whatever the model said. They call the service in this process, without HTTP. Each round of
a measurement starts with a cold cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from time import perf_counter, process_time
from typing import Any

import numpy as np

from akv_rsi.engine.request import Completion
from akv_rsi.policies.editor import Edit, Editor
from akv_rsi.policies.resident import AGENT_KINDS
from akv_rsi.server.segments import segments
from akv_rsi.server.service import Service
from akv_rsi.server.wire import ChatRequest
from akv_rsi.tasks.cost import PriceModel
from akv_rsi.types import Segment, Snapshot, Trajectory, Usage
from akv_rsi.visibility import Visibility

Messages = list[dict[str, Any]]
_ROLES = {"system": "system", "tools": "system", "user": "user", "tool_result": "tool"}


@dataclass(frozen=True, slots=True)
class Setting:
    """How agents behave: ``answer`` tokens a call, ``delay`` seconds in tools.

    ``recap`` asks for a summary of at most ``summary`` tokens; ``span`` is the reliable span.
    """

    span: int
    answer: int = 8
    delay: float = 0.05
    recap: str = "recap"
    summary: int = 64


@dataclass(slots=True)
class Measures:
    """What the calls of one measurement took, in seconds and tokens, over all its rounds."""

    first: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    prompt: int = 0
    cached: int = 0
    least_free: int | None = None
    seconds: float = 0.0
    processor: float = 0.0
    runs: int = 0

    def add(self, completion: Completion, prompt: int) -> None:
        """One call: its completion and the length of its prompt."""
        if len(completion.tokens) > 1:
            self.between.append(completion.itl)
        read = max(0, completion.attended - (completion.computed - completion.recovered))
        self.usage += Usage(
            calls=1,
            uncached=completion.computed,
            cached=read,
            written=completion.computed,
            output=len(completion.tokens),
            refreshed=completion.refreshed,
        )
        self.prompt += prompt
        self.cached += completion.cached

    def row(self, pages: int, prices: PriceModel) -> dict[str, Any]:
        """The measurement as JSON; times in milliseconds.

        ``cpu_s_per_run`` is this process's processor time: it does not depend on what else runs.
        """
        free = pages if self.least_free is None else self.least_free
        return {
            "calls": self.usage.calls,
            "ttft_p50_ms": _quantile(self.first, 0.5),
            "ttft_p95_ms": _quantile(self.first, 0.95),
            "inter_token_p95_ms": _quantile(self.between, 0.95),
            "output_tokens_per_s": round(self.usage.output / self.seconds, 1),
            "cost_per_run": round(prices.cost(self.usage) / self.runs, 1),
            "cpu_s_per_run": round(self.processor / self.runs, 2),
            "hit_share": round(self.cached / max(1, self.prompt), 3),
            "computed_tokens": self.usage.uncached,
            "refreshed_tokens": self.usage.refreshed,
            "pages_in_use_at_most": pages - free,
            "seconds": round(self.seconds, 2),
        }


async def measure(
    service: Service,
    trajectories: Sequence[Trajectory],
    concurrency: int,
    setting: Setting,
    measures: Measures,
    editor: Editor | None = None,
) -> None:
    """Runs all ``trajectories``, ``concurrency`` at a time; ``editor`` edits their text.

    What they took is added to ``measures``.
    """
    waiting = list(reversed(trajectories))

    async def agent() -> None:
        while waiting:
            await _Agent(service, setting, measures, editor).replay(waiting.pop())

    service.start()
    began, used = perf_counter(), process_time()
    try:
        await asyncio.gather(*(agent() for _ in range(concurrency)))
    finally:
        service.close()
    measures.seconds += perf_counter() - began
    measures.processor += process_time() - used
    measures.runs += len(trajectories)


class _Agent:
    def __init__(
        self, service: Service, setting: Setting, measures: Measures, editor: Editor | None
    ) -> None:
        self._service = service
        self._setting = setting
        self._measures = measures
        self._editor = editor

    async def replay(self, trajectory: Trajectory) -> None:
        messages: Messages = []
        for turn, (acts, found) in enumerate(
            groupby(trajectory.segments, key=lambda s: s.kind in AGENT_KINDS)
        ):
            if not acts:
                messages += [_message(segment) for segment in found]
                continue
            began = perf_counter()
            if self._editor is not None:
                messages = await self._edited(messages, trajectory.id, self._editor)
            said, first = await self._ask(messages, self._setting.answer)
            # What the text is edited for is waited for, a summary too.
            self._measures.first.append(first - began)
            messages.append({"role": "assistant", "content": said})
            await asyncio.sleep(self._setting.delay if turn else 0)

    async def _ask(self, messages: Messages, length: int) -> tuple[str, float]:
        """The answer, and when its first text came."""
        service, measures = self._service, self._measures
        asked = ChatRequest.model_validate(
            {"messages": messages, "max_tokens": length, "temperature": 0}
        )
        first: float | None = None
        job = await service.prepare(lambda: service.jobs.chat(asked, ""))
        generation = service.generation(job)
        async for _ in service.answer(generation):
            first = perf_counter() if first is None else first
        assert generation.completion is not None
        measures.add(generation.completion, len(job.request.tokens))
        free = service.runner.stats.pages_free
        least = measures.least_free
        measures.least_free = free if least is None else min(free, least)
        return generation.text, perf_counter() if first is None else first

    async def _edited(self, messages: Messages, name: str, editor: Editor) -> Messages:
        service, asked = self._service, ChatRequest.model_validate({"messages": messages})
        job = await service.prepare(lambda: service.jobs.chat(asked, ""))
        assert job.prompt is not None
        shown = segments(job.prompt)
        calls = [s for s in shown if s.kind in AGENT_KINDS]
        state = Visibility().append(calls[-1].end if calls else 0)
        snapshot = Snapshot(name, len(calls), tuple(shown), state, self._setting.span)
        edit = editor.edit(snapshot)
        return messages if edit is None else await self._rewritten(messages, edit)

    async def _rewritten(self, messages: Messages, edit: Edit) -> Messages:
        gone, put = {*edit.remove, *edit.summarise}, {}
        if edit.summarise:
            told = messages[: max(edit.summarise) + 1]
            request = {"role": "user", "content": self._setting.recap}
            summary, _ = await self._ask([*told, request], self._setting.summary)
            put = {min(edit.summarise): {"role": "assistant", "content": summary}}
        kept = [(i, message) for i, message in enumerate(messages) if i not in gone]
        return [message for _, message in sorted([*kept, *put.items()], key=lambda entry: entry[0])]


def _message(segment: Segment) -> dict[str, Any]:
    message: dict[str, Any] = {"role": _ROLES[segment.kind], "content": segment.text}
    if segment.kind == "tool_result":
        message |= {"tool_call_id": f"call_{segment.turn}", "is_error": segment.is_error}
    return message


def _quantile(values: Sequence[float], share: float) -> float | None:
    return round(1000 * float(np.quantile(values, share)), 1) if values else None
