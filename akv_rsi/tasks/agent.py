"""How a model takes part in a conversation: messages to tokens and back.

The protocol, and its smallest implementation: one header token, words, one end token.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from akv_rsi.errors import ModelLoadError
from akv_rsi.tasks.environment import Message
from akv_rsi.types import SegmentKind


class ChatFormat(Protocol):
    """A model's way of writing conversations. A message's tokens never depend on its neighbours.

    ``stop`` ends an answer; ``reliable_span`` is the number of positions within which the model can
    be trusted; ``max_new_tokens`` and ``max_summary_tokens`` bound its answers.
    """

    stop: frozenset[int]
    reliable_span: int
    max_new_tokens: int
    max_summary_tokens: int

    def encode(self, message: Message) -> list[int]:
        """The whole message, from its role header to its end marker and separator."""
        ...

    def prompt(self) -> list[int]:
        """The header that starts the agent's own message."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of an answer, without its end marker."""
        ...

    def summary_request(self) -> Message:
        """The message that asks the agent to restate what it must not forget."""
        ...


ROLES: dict[SegmentKind, str] = {
    "system": "<system>",
    "tools": "<system>",
    "user": "<user>",
    "tool_result": "<tool>",
    "reasoning": "<assistant>",
    "assistant": "<assistant>",
    "tool_call": "<assistant>",
}
END = "<end>"
UNKNOWN = "<unknown>"


class WordFormat:
    """The reference agent's format over a closed vocabulary of lower-case words.

    Words are separated by spaces, punctuation marks too; a word outside the vocabulary becomes
    ``<unknown>``, which the agent has never seen.
    """

    max_new_tokens = 8
    max_summary_tokens = 64

    def __init__(self, vocabulary: dict[str, int], reliable_span: int) -> None:
        self._ids = vocabulary
        self._words = {i: word for word, i in vocabulary.items()}
        self._unknown = vocabulary[UNKNOWN]
        self.reliable_span = reliable_span
        self.stop = frozenset({vocabulary[END]})

    @classmethod
    def load(cls, path: Path, reliable_span: int) -> WordFormat:
        """The format of a model folder, from its ``tokenizer.json``."""
        file = path / "tokenizer.json"
        try:
            words = json.loads(file.read_text())["model"]["vocab"]
            return cls(words, reliable_span)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelLoadError(f"{file} is not a word-level tokenizer: {error!r}") from error

    def encode(self, message: Message) -> list[int]:
        """Header, words, end."""
        words = (ROLES[message.kind], *message.text.lower().split(), END)
        return [self._ids.get(word, self._unknown) for word in words]

    def prompt(self) -> list[int]:
        """The ``<assistant>`` header."""
        return [self._ids[ROLES["assistant"]]]

    def decode(self, tokens: Sequence[int]) -> str:
        """The words up to the end marker."""
        words = [self._words.get(token, UNKNOWN) for token in tokens]
        return " ".join(words[: words.index(END)] if END in words else words)

    def summary_request(self) -> Message:
        """The one request the agent was trained to answer with a recap of the facts."""
        return Message("user", "recap")


def vocabulary(words: Sequence[str]) -> dict[str, int]:
    """Ids for the special words and then ``words``, sorted: the same list gives the same ids."""
    special = (UNKNOWN, *dict.fromkeys(ROLES.values()), END)
    return {word: i for i, word in enumerate((*special, *sorted(set(words) - set(special))))}
