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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from akv_rsi.errors import ModelLoadError
from akv_rsi.tasks.encoding import Encoder
from akv_rsi.tasks.locate import ChatMessage, Locator, TemplateRefused
from akv_rsi.tasks.located import Located, digests
from akv_rsi.types import Range

# A text that no end marker holds.
_PROBE = "Yes"
# What a decoder writes for bytes that are no whole character.
_BROKEN = "\ufffd"
# Conversations whose messages are remembered.
_CAPACITY = 512


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
    """Renders conversations with the template of a ``tokenizer`` of transformers (a fast one).

    It is used by one thread at a time.
    """

    def __init__(self, tokenizer: Any) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise TemplateRefused("the tokenizer has no chat template")
        if not getattr(tokenizer, "is_fast", False):
            raise TemplateRefused("the tokenizer is a slow one: it cannot tell where tokens begin")
        self.tokenizer = tokenizer
        self.pause: Callable[[], None] = lambda: None
        """Called before each rendering: in between, other threads may use the template."""
        self._located = Located(_CAPACITY)
        self._encoder = Encoder(tokenizer)

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
        owner: str = "",
    ) -> Written:
        """The conversation as text, with the header of the next answer if ``answer``.

        What is known of an ``owner``'s conversations saves others no time. `TemplateRefused` when
        the template refuses it or cannot tell its messages apart.
        """
        if not messages:
            raise TemplateRefused("a conversation needs at least one message")
        whole = self._text(messages, tools, False)
        text = self._text(messages, tools, True) if answer else whole
        if not text.startswith(whole):
            raise TemplateRefused("the template changes the conversation to ask for an answer")
        keys = digests(messages, tools, owner)
        locator = Locator(self._text, messages, tools, whole)
        starts, rewritten = locator.starts(self._located.longest(keys))
        if rewritten is None:
            self._located.put(keys[-1], starts)
        return Written(text, starts, rewritten)

    def render(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[Any] | None = None,
        answer: bool = True,
        owner: str = "",
    ) -> Rendered:
        """The conversation as tokens; see `write`."""
        written = self.write(messages, tools, answer, owner)
        tokens, offsets = self._encoder.encode(written.text, written.starts, owner)
        starts = tuple(bisect_left(offsets, start) for start in written.starts)
        return Rendered(tuple(tokens), starts, tuple(offsets), written)

    def stops(self) -> frozenset[int]:
        """What ends an answer: the first token behind its text, and the tokenizer's own end."""
        asked = {"role": "user", "content": _PROBE}
        probe = self.render([asked, {"role": "assistant", "content": _PROBE}], answer=False)
        end = probe.token_at(probe.written.text.rindex(_PROBE) + len(_PROBE))
        eos = self.tokenizer.eos_token_id
        return frozenset({*probe.tokens[end : end + 1], *([] if eos is None else [eos])})

    def words(self) -> list[int]:
        """The tokens that stand for text by themselves and end no answer, ascending."""
        texts = self.tokenizer.batch_decode(
            [[token] for token in range(len(self.tokenizer))], skip_special_tokens=True
        )
        ends = self.stops()
        return [i for i, t in enumerate(texts) if t.strip() and _BROKEN not in t and i not in ends]

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
        self.pause()
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
