"""How an answer is written: OpenAI's bodies and chunks, for chats and for plain text."""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from akv_rsi.server.generation import Generation
from akv_rsi.server.jobs import Job
from akv_rsi.server.toolcalls import parse


class Shape(ABC):
    """The form of one answer. Every body and chunk of it has the same id."""

    def __init__(self, model: str, prefix: str, kind: str, chunk_kind: str) -> None:
        self._head = {
            "id": f"{prefix}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
        }
        self._kind = kind
        self._chunk_kind = chunk_kind

    def body(self, generation: Generation, usage: dict[str, Any]) -> dict[str, Any]:
        """The whole answer at once."""
        return self._with(self._kind, [self._choice(generation)], generation.job) | {"usage": usage}

    def first(self, job: Job) -> Iterator[dict[str, Any]]:
        """The chunks before any text."""
        yield from ()

    @abstractmethod
    def piece(self, text: str, job: Job) -> dict[str, Any]:
        """The chunk of one piece of text."""

    @abstractmethod
    def last(self, generation: Generation) -> Iterator[dict[str, Any]]:
        """The chunks behind the text: tool calls, and why it ended."""

    def usage(self, usage: dict[str, Any], job: Job) -> dict[str, Any]:
        """The chunk of the usage."""
        return self._with(self._chunk_kind, [], job) | {"usage": usage}

    @abstractmethod
    def _choice(self, generation: Generation) -> dict[str, Any]: ...

    def _with(self, kind: str, choices: list[dict[str, Any]], job: Job) -> dict[str, Any]:
        return {**self._head, "object": kind, "choices": choices, "akv": _about(job)}


class ChatShape(Shape):
    """The form of ``/v1/chat/completions``; ``calls`` says whether tool calls are looked for."""

    def __init__(self, model: str, calls: bool) -> None:
        super().__init__(model, "chatcmpl", "chat.completion", "chat.completion.chunk")
        self._calls = calls

    def first(self, job: Job) -> Iterator[dict[str, Any]]:
        """See `Shape`."""
        yield self._chunk({"role": "assistant", "content": ""}, None, job)

    def piece(self, text: str, job: Job) -> dict[str, Any]:
        """See `Shape`."""
        return self._chunk({"content": text}, None, job)

    def last(self, generation: Generation) -> Iterator[dict[str, Any]]:
        """See `Shape`."""
        said = self._said(generation)
        if said["tool_calls"]:
            calls = [{"index": i, **call} for i, call in enumerate(said["tool_calls"])]
            yield self._chunk({"tool_calls": calls}, None, generation.job)
        elif rest := generation.held:
            yield self._chunk({"content": rest}, None, generation.job)
        yield self._chunk({}, self._finish(generation, said), generation.job)

    def _choice(self, generation: Generation) -> dict[str, Any]:
        said = self._said(generation)
        message = {"role": "assistant", "content": said["content"], "refusal": None}
        if said["tool_calls"]:
            message["tool_calls"] = said["tool_calls"]
        finish = self._finish(generation, said)
        return {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}

    def _said(self, generation: Generation) -> dict[str, Any]:
        if not self._calls:
            return {"content": generation.text, "tool_calls": []}
        said = parse(generation.text)
        return {"content": said.content or None, "tool_calls": said.calls}

    def _finish(self, generation: Generation, said: dict[str, Any]) -> str:
        return "tool_calls" if said["tool_calls"] else generation.finish

    def _chunk(self, delta: dict[str, Any], finish: str | None, job: Job) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._with(self._chunk_kind, [choice], job)


class TextShape(Shape):
    """The form of ``/v1/completions``."""

    def __init__(self, model: str) -> None:
        super().__init__(model, "cmpl", "text_completion", "text_completion")

    def piece(self, text: str, job: Job) -> dict[str, Any]:
        """See `Shape`."""
        return self._with(self._chunk_kind, [_text_choice(text, None)], job)

    def last(self, generation: Generation) -> Iterator[dict[str, Any]]:
        """See `Shape`."""
        choice = _text_choice("", generation.finish)
        yield self._with(self._chunk_kind, [choice], generation.job)

    def _choice(self, generation: Generation) -> dict[str, Any]:
        return _text_choice(generation.text, generation.finish)


def _text_choice(text: str, finish: str | None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}


def _about(job: Job) -> dict[str, Any]:
    """What is ours in an answer: where its record is, and whether the policy took part."""
    about: dict[str, Any] = {"session": job.session}
    if job.plan is not None and job.plan.error is not None:
        about["policy_error"] = job.plan.error
    return about
