"""From sampled tokens to text that may be shown: stop strings, half characters, held-back text."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class Reader:
    """Reads one answer as it grows.

    ``stops`` end it where they begin. What follows a text of ``hold`` is not shown piece by piece,
    since it is no text for the client. ``ends`` are the tokens that end an answer and say nothing.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        ends: frozenset[int],
        stops: Sequence[str] = (),
        hold: Sequence[str] = (),
    ) -> None:
        self._decode = decode
        self._ends = ends
        self._stops = stops
        self._hold = hold
        self._shown = 0
        self.tokens: list[int] = []
        self.text = ""
        self.stopped = False

    @property
    def shown(self) -> int:
        """Characters of the text that were shown."""
        return self._shown

    @property
    def held(self) -> str:
        """The text that was held back."""
        return self.text[self._shown :]

    def push(self, tokens: Sequence[int]) -> str:
        """Takes newly sampled tokens; the text that can be shown now for the first time."""
        if self.stopped:
            return ""
        self.tokens.extend(token for token in tokens if token not in self._ends)
        self.text = self._decode(self.tokens)
        found = [at for stop in self._stops if (at := self.text.find(stop)) >= 0]
        if found:
            self.text, self.stopped = self.text[: min(found)], True
        return self._show(self.text if self.stopped else self._certain())

    def close(self) -> str:
        """The answer is complete: the text that was waiting for what might follow it."""
        return self._show(self.text)

    def _show(self, text: str) -> str:
        held = [at for mark in self._hold if (at := text.find(mark)) >= 0]
        text = text[: min(held)] if held else text
        new = text[self._shown :]
        self._shown = max(self._shown, len(text))
        return new

    def _certain(self) -> str:
        """The text without what may yet become another character, or the start of a marker."""
        text = self.text.rstrip("\ufffd")
        marks = (*self._stops, *self._hold)
        longest = max(map(len, marks), default=1) - 1
        for length in range(min(longest, len(text)), 0, -1):
            if any(mark.startswith(text[-length:]) for mark in marks):
                return text[:-length]
        return text
