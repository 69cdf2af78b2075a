"""How an answer is written: OpenAI's bodies and chunks, for chats and for plain text."""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from akv_rsi.server.generation import Generation, Piece
from akv_rsi.server.jobs import Job
from akv_rsi.server.likelihood import Entry, chat_logprobs, text_logprobs
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
    def piece(self, piece: Piece, job: Job) -> dict[str, Any]:
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

    def piece(self, piece: Piece, job: Job) -> dict[str, Any]:
        """See `Shape`."""
        return self._chunk({"content": piece.text}, None, job, piece.entries)

    def last(self, generation: Generation) -> Iterator[dict[str, Any]]:
        """See `Shape`."""
        said = self._said(generation)
        if said["tool_calls"]:
            calls = [{"index": i, **call} for i, call in enumerate(said["tool_calls"])]
            yield self._chunk({"tool_calls": calls}, None, generation.job)
        elif rest := generation.held:
            yield self._chunk({"content": rest}, None, generation.job)
        finish = self._finish(generation, said)
        yield self._chunk({}, finish, generation.job, generation.rest)

    def _choice(self, generation: Generation) -> dict[str, Any]:
        said = self._said(generation)
        message = {"role": "assistant", "content": said["content"], "refusal": None}
        if said["tool_calls"]:
            message["tool_calls"] = said["tool_calls"]
        return {
            "index": 0,
            "message": message,
            "logprobs": None if generation.entries is None else chat_logprobs(generation.entries),
            "finish_reason": self._finish(generation, said),
        }

    def _said(self, generation: Generation) -> dict[str, Any]:
        if not self._calls:
            return {"content": generation.text, "tool_calls": []}
        said = parse(generation.text)
        return {"content": said.content or None, "tool_calls": said.calls}

    def _finish(self, generation: Generation, said: dict[str, Any]) -> str:
        return "tool_calls" if said["tool_calls"] else generation.finish

    def _chunk(
        self, delta: dict[str, Any], finish: str | None, job: Job, entries: Sequence[Entry] = ()
    ) -> dict[str, Any]:
        logprobs = chat_logprobs(entries) if entries else None
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return self._with(self._chunk_kind, [choice], job)


class TextShape(Shape):
    """The form of ``/v1/completions``."""

    def __init__(self, model: str) -> None:
        super().__init__(model, "cmpl", "text_completion", "text_completion")

    def piece(self, piece: Piece, job: Job) -> dict[str, Any]:
        """See `Shape`."""
        return self._with(
            self._chunk_kind, [_text_choice(piece.text, piece.entries or None, None)], job
        )

    def last(self, generation: Generation) -> Iterator[dict[str, Any]]:
        """See `Shape`."""
        choice = _text_choice("", generation.rest or None, generation.finish)
        yield self._with(self._chunk_kind, [choice], generation.job)

    def _choice(self, generation: Generation) -> dict[str, Any]:
        return _text_choice(generation.text, generation.entries, generation.finish)


def _text_choice(text: str, entries: Sequence[Entry] | None, finish: str | None) -> dict[str, Any]:
    logprobs = None if entries is None else text_logprobs(entries)
    return {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish}


def _about(job: Job) -> dict[str, Any]:
    """What is ours in an answer: where its record is, and whether the policy took part."""
    about: dict[str, Any] = {"session": job.session}
    if job.plan is not None and job.plan.error is not None:
        about["policy_error"] = job.plan.error
    return about
