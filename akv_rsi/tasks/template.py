"""A pretrained model's chat template: which tokens of a prompt belong to which message.

A template is a program; only rendering tells where a message lies. So a conversation is rendered
prefix by prefix, the whole text is tokenised once, and a token belongs to the message that holds
its first character. Messages tokenised apart would be other tokens.

Templates rewrite. Some write earlier messages otherwise once a later user message is there: they
take out the reasoning of earlier answers, or move the tools. Those are found out, and located by
rendering each prefix in front of the last user message and what follows it. What cannot be located
is refused.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from akv_rsi.errors import ConfigError, ModelLoadError
from akv_rsi.types import Range

# As in OpenAI's chat API: role, content, tool_calls and so on.
ChatMessage = Mapping[str, Any]
# Messages, tools, and whether the header of the next answer is wanted: the text.
Render = Callable[[Sequence[ChatMessage], Sequence[Any] | None, bool], str]
# A text that no end marker holds.
_PROBE = "Yes"


class TemplateRefused(ConfigError):
    """A chat template cannot write a conversation, or its tokens cannot be told apart."""


@dataclass(frozen=True, slots=True)
class Written:
    """A conversation as text. Message ``i`` lies in ``[starts[i], starts[i + 1])``, in characters.

    What precedes the first message belongs to it; what follows ``starts[-1]`` is the header of the
    next answer. ``rewritten`` is the first message that the template wrote otherwise before the
    last user message came; None if the text only grew.
    """

    text: str
    starts: tuple[int, ...]
    rewritten: int | None = None

    def message(self, number: int) -> str:
        """The text of one message, header and end marker included."""
        return self.text[self.starts[number] : self.starts[number + 1]]


@dataclass(frozen=True, slots=True)
class Rendered:
    """A conversation as ``tokens``; ``starts`` as in `Written`, but in tokens.

    ``offsets`` are the characters of ``written`` at which tokens begin.
    """

    tokens: tuple[int, ...]
    starts: tuple[int, ...]
    offsets: tuple[int, ...]
    written: Written

    def span(self, number: int) -> Range:
        """The tokens of one message; empty where a template writes it into the next one."""
        return self.starts[number], self.starts[number + 1]

    def token_at(self, character: int) -> int:
        """The first token that begins at or behind ``character``."""
        return bisect_left(self.offsets, character)


class ChatTemplate:
    """Renders conversations with the template of a ``tokenizer`` of transformers (a fast one)."""

    def __init__(self, tokenizer: Any) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise TemplateRefused("the tokenizer has no chat template")
        if not getattr(tokenizer, "is_fast", False):
            raise TemplateRefused("the tokenizer is a slow one: it cannot tell where tokens begin")
        self.tokenizer = tokenizer

    @classmethod
    def load(cls, folder: Path) -> ChatTemplate:
        """The template of a model folder; `ModelLoadError` when there is no usable tokenizer."""
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        except Exception as error:  # whatever a foreign tokenizer's code runs into
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ModelLoadError(f"{folder} has no usable tokenizer: {first}") from error
        return cls(tokenizer)

    def write(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[Any] | None = None,
        answer: bool = True,
    ) -> Written:
        """The conversation as text, with the header of the next answer if ``answer``.

        `TemplateRefused` when the template refuses it or cannot tell its messages apart.
        """
        if not messages:
            raise TemplateRefused("a conversation needs at least one message")
        whole = self._text(messages, tools, False)
        text = self._text(messages, tools, True) if answer else whole
        if not text.startswith(whole):
            raise TemplateRefused("the template changes the conversation to ask for an answer")
        starts, rewritten = _Locator(self._text, messages, tools, whole).starts()
        return Written(text, starts, rewritten)

    def render(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[Any] | None = None,
        answer: bool = True,
    ) -> Rendered:
        """The conversation as tokens; see `write`."""
        written = self.write(messages, tools, answer)
        encoding = self.tokenizer(
            written.text, add_special_tokens=False, return_offsets_mapping=True
        )
        offsets = tuple(start for start, _ in encoding["offset_mapping"])
        starts = tuple(bisect_left(offsets, start) for start in written.starts)
        return Rendered(tuple(encoding["input_ids"]), starts, offsets, written)

    def stops(self) -> frozenset[int]:
        """What ends an answer: the first token behind its text, and the tokenizer's own end."""
        asked = {"role": "user", "content": _PROBE}
        probe = self.render([asked, {"role": "assistant", "content": _PROBE}], answer=False)
        end = probe.token_at(probe.written.text.rindex(_PROBE) + len(_PROBE))
        eos = self.tokenizer.eos_token_id
        return frozenset({*probe.tokens[end : end + 1], *([] if eos is None else [eos])})

    def encode(self, text: str) -> tuple[int, ...]:
        """A text that is no conversation, as the tokenizer opens one."""
        return tuple(self.tokenizer(text)["input_ids"])

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of an answer, without special tokens."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))

    def name(self, token: int) -> str:
        """A token as the vocabulary has it, special ones too."""
        return str(self.tokenizer.convert_ids_to_tokens(token))

    def _text(
        self, messages: Sequence[ChatMessage], tools: Sequence[Any] | None, answer: bool
    ) -> str:
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    [dict(message) for message in messages],
                    tools=tools,
                    add_generation_prompt=answer,
                    tokenize=False,
                )
            )
        except Exception as error:  # templates are foreign code, and raise what they like
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise TemplateRefused(
                f"the chat template refuses this conversation: {first}"
            ) from error


class _Locator:
    """Finds where the messages lie in the text ``whole``."""

    def __init__(
        self,
        text: Render,
        messages: Sequence[ChatMessage],
        tools: Sequence[Any] | None,
        whole: str,
    ) -> None:
        self._text = text
        self._messages = messages
        self._tools = tools
        self._whole = whole
        users = [i for i, message in enumerate(messages) if message.get("role") == "user"]
        self._last_user = users[-1] if users else 0
        self._tail: str | None = None

    def starts(self) -> tuple[tuple[int, ...], int | None]:
        """Where each message starts, the end, and the first one that was rewritten."""
        starts, rewritten = [0], None
        for count in range(1, len(self._messages)):
            end = self._plain(count)
            if end is None and count <= self._last_user:
                end = self._anchored(count, starts[-1])
                rewritten = count - 1 if rewritten is None else rewritten
            if end is None or end < starts[-1]:
                raise self._refusal(count - 1)
            starts.append(end)
        starts.append(len(self._whole))
        for number, (start, end) in enumerate(pairwise(starts)):
            if not self._holds(number, self._whole[start:end]):
                raise self._refusal(number)
        return tuple(starts), rewritten

    def _refusal(self, number: int) -> TemplateRefused:
        return TemplateRefused(
            f"the chat template writes message {number} or those before it otherwise once later "
            "ones follow, so their tokens cannot be told apart"
        )

    def _holds(self, number: int, text: str) -> bool:
        """Whether what a user said is where it was found; other texts a template may reword."""
        message = self._messages[number]
        said = message.get("content")
        return message.get("role") != "user" or not isinstance(said, str) or said.strip() in text

    def _plain(self, count: int) -> int | None:
        """Where the first ``count`` messages end, if alone they are the beginning of the text.

        A first message that the template refuses alone (a system prompt) is part of the next one.
        """
        try:
            prefix = self._text(self._messages[:count], self._tools, False)
        except TemplateRefused:
            return 0 if count == 1 else None
        return len(prefix) if self._whole.startswith(prefix) else None

    def _anchored(self, count: int, before: int) -> int | None:
        """The same, when the last user message and all behind it follow at once.

        ``before`` is where the message before ends.
        """
        try:
            if self._tail is None:
                self._tail = self._find_tail(count, before)
            text = self._in_front(count)
        except TemplateRefused:
            return None
        end = len(text) - len(self._tail)
        fits = text.endswith(self._tail) and self._whole.startswith(text[:end])
        return end if fits else None

    def _find_tail(self, count: int, before: int) -> str:
        """The text from the last user message on, given the first ``count`` that is not plain."""
        if before:
            return self._in_front(count - 1)[before:]
        # No message stands alone: what all have in common must be what follows them.
        texts = [self._in_front(k) for k in range(self._last_user + 1)]
        return _common_start([text[::-1] for text in texts])[::-1]

    def _in_front(self, count: int) -> str:
        """The first ``count`` messages, and then at once the last user message and all behind."""
        tail = self._messages[self._last_user :]
        return self._text([*self._messages[:count], *tail], self._tools, False)


def _common_start(texts: Sequence[str]) -> str:
    """The longest text that all begin with."""
    first, last = min(texts), max(texts)  # of sorted texts, these differ earliest
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), None)
    return first if same is None else first[:same]
