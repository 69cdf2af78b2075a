"""Requests as they come over the wire: OpenAI's fields, and ours.

Unknown top-level fields are ignored, as clients send many; fields that would change the answer and
that this server cannot honour are refused (`unsupported`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from akv_rsi.server.refusal import Refusal

Index = Annotated[int, Field(ge=0)]
# JSON's keys are texts, and it has no tuples.
Key = Annotated[int, Field(ge=0, strict=False)]
Pair = Annotated[tuple[Index, Index], Field(strict=False)]
Strings = Annotated[list[str], Field(max_length=16)]
# How many of the likeliest tokens are told at most, as in OpenAI's API.
Likeliest = Annotated[int, Field(ge=0, le=20)]


class Wire(BaseModel):
    """Types are JSON's: no number is read from a text, and none from true or false."""

    model_config = ConfigDict(strict=True)


class TextPart(Wire):
    """A part of a message's content; only text can be read."""

    type: Literal["text", "input_text"]
    text: str


class Function(Wire):
    """The function of a tool call; ``arguments`` are JSON as text."""

    name: str
    arguments: str = ""


class ToolCall(Wire):
    """A tool call of an assistant message."""

    id: str
    type: Literal["function"] = "function"
    function: Function


class Message(Wire):
    """One message of the conversation. ``is_error`` marks a tool's failure, for policies."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    is_error: bool = False

    @property
    def text(self) -> str:
        """The content as one text."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class CacheOp(Wire):
    """One cache op: where it happens and what it is about.

    It happens at token ``boundary``, or after message ``after``; it is about token ``ranges``, or
    about whole ``messages``. A ``repos`` is about everything.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    op: Literal["drop", "restore", "refresh", "repos"]
    boundary: Index | None = None
    after: Index | None = None
    ranges: list[Pair] | None = None
    messages: list[Index] | None = None


class DropRule(Wire):
    """What the server drops by itself before each call, but for the ``keep_last`` latest.

    ``message_drop``: whole messages of ``role``. ``text_drop``: stretches of text from ``start`` to
    ``end``. ``thinking_drop``: ``<think>`` to ``</think>`` in assistant messages.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    type: Literal["message_drop", "text_drop", "thinking_drop"]
    keep_last: Annotated[int, Field(ge=0)] = 1
    role: Literal["user", "assistant", "tool"] = "tool"
    start: str | None = Field(default=None, min_length=1)
    end: str | None = Field(default=None, min_length=1)


class StreamOptions(Wire):
    """``include_usage`` adds a last chunk with the usage."""

    include_usage: bool = False


class Asked(Wire):
    """What chat and plain completions have in common; ``cache_salt`` divides a tenant's cache."""

    model: str | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: str | Strings | None = None
    seed: int | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    cache_ops: list[CacheOp] | None = None
    cache_salt: str = ""

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings; empty ones stop nothing."""
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(text for text in given if text)


class ChatRequest(Asked):
    """A call of ``/v1/chat/completions``."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    logprobs: bool | None = None
    top_logprobs: Likeliest | None = None
    drop_message: dict[Key, list[Index]] | None = None
    reposition: list[Index] | None = None
    drop_rule: DropRule | list[DropRule] | None = None

    @property
    def rules(self) -> list[DropRule]:
        """Its drop rules."""
        if isinstance(self.drop_rule, DropRule):
            return [self.drop_rule]
        return self.drop_rule or []

    @property
    def has_ops(self) -> bool:
        """Whether the client engineers its cache by itself."""
        return bool(self.drop_message or self.reposition or self.drop_rule or self.cache_ops)

    @property
    def likeliest(self) -> int | None:
        """How many likeliest tokens are told in each place; None without log-probabilities."""
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionRequest(Asked):
    """A call of ``/v1/completions``: a text, or its tokens."""

    prompt: str | list[int] | list[str] | list[list[int]]
    echo: bool = False
    best_of: int | None = None
    suffix: str | None = None
    logprobs: Likeliest | None = None

    @property
    def likeliest(self) -> int | None:
        """How many likeliest tokens are told in each place; None without log-probabilities."""
        return self.logprobs


def refuse_unsupported(asked: ChatRequest | CompletionRequest) -> None:
    """Raises `Refusal` (400) for what would change the answer and cannot be honoured."""
    fixed: dict[str, tuple[object, ...]] = {
        "n": (None, 1),
        "top_p": (None, 1),
        "presence_penalty": (None, 0),
        "frequency_penalty": (None, 0),
        "logit_bias": (None, {}),
    }
    if isinstance(asked, ChatRequest):
        fixed["tool_choice"] = (None, "auto", "none")
        fixed["response_format"] = (None, {"type": "text"})
        if asked.top_logprobs and not asked.logprobs:
            raise Refusal(400, "top_logprobs needs logprobs: true", "top_logprobs")
    else:
        fixed |= {"echo": (False,), "best_of": (None, 1), "suffix": (None, "")}
    for name, allowed in fixed.items():
        value = getattr(asked, name)
        if not any(value == one for one in allowed):
            raise Refusal(
                400, f"{name}={value!r} is not supported by this server: leave it out", name
            )
