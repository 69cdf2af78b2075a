"""How likely the tokens of an answer were: from ids to pieces of its text, in OpenAI's forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from akv_rsi.engine.request import Sampled

# A piece of text is told apart by the tokens just before it: that many are enough.
_CONTEXT = 8


class Entry(NamedTuple):
    """One token of an answer: its text, which begins at character ``start``, and its likelihood.

    ``top`` are the texts and log-probabilities of the likeliest tokens in its place.
    """

    text: str
    start: int
    logprob: float
    top: tuple[tuple[str, float], ...]


class Entries:
    """The tokens of one answer as it grows, without the ``ends``, which say nothing.

    ``name`` tells a token that has no text of its own, such as an end marker. ``given`` are those
    that `before` has given out.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        name: Callable[[int], str],
        ends: frozenset[int],
    ) -> None:
        self.given: list[Entry] = []
        self._decode = decode
        self._name = name
        self._ends = ends
        self._recent: list[int] = []
        self._length = 0
        self._waiting: list[Entry] = []

    def push(self, sampled: Sampled) -> None:
        """Takes newly sampled tokens; those without a likelihood are not asked about."""
        for token, likely in zip(sampled.tokens, sampled.likely, strict=False):
            if token in self._ends:
                continue
            text = self._piece(token)
            top = tuple((self._told(other), value) for other, value in likely.top)
            self._waiting.append(Entry(text, self._length, likely.logprob, top))
            self._length += len(text)
            self._recent = [*self._recent, token][-_CONTEXT:]

    def before(self, character: int) -> list[Entry]:
        """Those that begin before that character of the answer and were not given out yet."""
        given = [entry for entry in self._waiting if entry.start < character]
        self._waiting = self._waiting[len(given) :]
        self.given += given
        return given

    def _piece(self, token: int) -> str:
        """What the token adds to the text. A half character counts where it is completed."""
        before, after = (
            self._decode(tokens).rstrip("\ufffd")
            for tokens in (self._recent, [*self._recent, token])
        )
        return after[len(before) :]

    def _told(self, token: int) -> str:
        return self._piece(token) or self._name(token)


def chat_logprobs(entries: Sequence[Entry]) -> dict[str, Any]:
    """The ``logprobs`` of a chat's choice."""
    return {"content": [_chat_entry(entry) for entry in entries], "refusal": None}


def text_logprobs(entries: Sequence[Entry]) -> dict[str, Any]:
    """The ``logprobs`` of a plain completion's choice; offsets count from the answer's start."""
    return {
        "tokens": [entry.text for entry in entries],
        "token_logprobs": [entry.logprob for entry in entries],
        "top_logprobs": [dict(_likeliest_first(entry.top)) for entry in entries],
        "text_offset": [entry.start for entry in entries],
    }


def _chat_entry(entry: Entry) -> dict[str, Any]:
    top = [_spelled(text, logprob) for text, logprob in entry.top]
    return _spelled(entry.text, entry.logprob) | {"top_logprobs": top}


def _spelled(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


def _likeliest_first(top: Sequence[tuple[str, float]]) -> Iterator[tuple[str, float]]:
    """Two tokens can have one text: the likelier, written last, holds."""
    return reversed(top)
