"""From messages to the tokens of a prompt, with messages and marked stretches located in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from akv_rsi.errors import ConfigError
from akv_rsi.server.wire import Message
from akv_rsi.tasks.locate import TemplateRefused
from akv_rsi.tasks.template import ChatTemplate, Rendered
from akv_rsi.types import Range

TAG = "ephemeral_observation"
_TAGGED = re.compile(f"<{TAG}>(.*?)</{TAG}>", re.DOTALL)


class Mark(NamedTuple):
    """An ephemeral stretch of a message, in tokens; ``text`` is what it says."""

    message: int
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation as tokens, from its first message to the header of the next answer.

    ``rendered.starts`` tells the messages apart; ``marks`` are its ephemeral stretches.
    """

    messages: tuple[Message, ...]
    rendered: Rendered
    marks: tuple[Mark, ...]

    @property
    def length(self) -> int:
        """Tokens of the messages, without the header: no op can happen behind them."""
        return self.rendered.starts[-1]

    def ends(self) -> list[int]:
        """Where each message ends, in tokens."""
        return list(self.rendered.starts[1:])

    @property
    def answers(self) -> list[int]:
        """The messages that are answers of the assistant."""
        return [i for i, message in enumerate(self.messages) if message.role == "assistant"]

    def turn_start(self, boundary: int) -> int:
        """Where the turn that is current at ``boundary`` begins: with the last answer before it."""
        starts = self.rendered.starts
        begun = [starts[i] for i in self.answers if starts[i] < boundary]
        return begun[-1] if begun else 0

    @property
    def pinned(self) -> tuple[Range, ...]:
        """The attention sinks: the system message, else the first four tokens."""
        first = self.rendered.starts[1] if self.messages[0].role in ("system", "developer") else 4
        return ((0, min(max(first, 1), len(self.rendered.tokens))),)


class Writer:
    """Renders conversations for one model; ``keep_tags`` leaves the ephemeral tags in the text."""

    def __init__(self, template: ChatTemplate, keep_tags: bool) -> None:
        self._template = template
        self._keep_tags = keep_tags
        self._knows_tools = self._stands("tool")

    def write(
        self, messages: Sequence[Message], tools: Sequence[Any] | None, tenant: str
    ) -> Prompt:
        """The prompt; `TemplateRefused` when the template cannot write it or locate its parts.

        It takes a ``tenant`` as long whether or not others have sent the same.
        """
        written, spans = [], []
        for message in messages:
            text, marked = self._marked(message.text)
            spans.append(marked)
            written.append(self._plain(message, text))
        try:
            rendered = self._template.render(written, list(tools) if tools else None, owner=tenant)
        except (TypeError, UnicodeError) as error:  # tokenizers take no lone surrogates
            raise TemplateRefused(f"the conversation is not valid Unicode: {error}") from error
        marks = [
            _located(rendered, number, str(written[number]["content"]), span)
            for number, marked in enumerate(spans)
            for span in marked
        ]
        return Prompt(tuple(messages), rendered, tuple(marks))

    def _marked(self, text: str) -> tuple[str, list[Range]]:
        """The text as the prompt has it, and its ephemeral stretches in characters."""
        spans, pieces, length, last = [], [], 0, 0
        for found in _TAGGED.finditer(text):
            inside = found.span(0 if self._keep_tags else 1)
            before = text[last : found.start()]
            kept = text[slice(*inside)]
            pieces += [before, kept]
            start = length + len(before)
            length = start + len(kept)
            if kept:
                spans.append((start, length))
            last = found.end()
        return "".join([*pieces, text[last:]]), spans

    def _plain(self, message: Message, text: str) -> dict[str, Any]:
        """A message as templates expect it: text, calls with parsed arguments, roles they know."""
        role = "system" if message.role == "developer" else message.role
        if role == "tool" and not self._knows_tools:
            role = "user"
        out: dict[str, Any] = {"role": role, "content": text}
        if message.tool_calls:
            out["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {
                        "name": call.function.name,
                        "arguments": _parsed(call.function.arguments),
                    },
                }
                for call in message.tool_calls
            ]
        if role == "tool" and message.tool_call_id is not None:
            out["tool_call_id"] = message.tool_call_id
        return out

    def _stands(self, role: str) -> bool:
        """Whether the template writes what a message of ``role`` says."""
        said = [{"role": "user", "content": "-"}, {"role": "assistant", "content": "-"}]
        try:
            written = self._template.write([*said, {"role": role, "content": "some words"}])
        except TemplateRefused:
            return False
        return "some words" in written.message(2)


def untagged(text: str) -> Iterator[str]:
    """What stands before, between and behind the ephemeral stretches of a message."""
    return iter(_TAGGED.split(text)[::2])


def _parsed(arguments: str) -> Mapping[str, Any] | str:
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return parsed if isinstance(parsed, dict) else arguments


def _located(rendered: Rendered, number: int, content: str, span: Range) -> Mark:
    """The tokens of the characters ``span`` of a message's content.

    A token belongs to what holds its first character. Templates may trim the content.
    """
    text, trimmed = rendered.written.message(number), content.strip()
    at = text.rfind(trimmed)
    if at < 0:
        raise ConfigError(
            f"the chat template rewords message {number}, so its ephemeral text cannot be located"
        )
    start = rendered.written.starts[number] + at - (len(content) - len(content.lstrip()))
    first, last = start + span[0], start + span[1]
    return Mark(number, rendered.token_at(first), rendered.token_at(last), content[slice(*span)])
