"""Where the messages of a conversation lie in the text that a chat template makes of it.

A template is a program; only rendering tells. The first ``k`` messages rendered alone are the
beginning of the text, and end where message ``k`` begins. Rendering every prefix takes time that
grows with the square of the conversation, so two things save work. What was located once is
remembered by the messages up to there (`located`). And of a long conversation that is new, only
every `STRETCH`-th prefix is rendered; those between are read off a short conversation, which opens
and ends as the prefix does, and counts only if both say the same of the whole stretch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from akv_rsi.errors import ConfigError

# As in OpenAI's chat API: role, content, tool_calls and so on.
ChatMessage = Mapping[str, Any]
# Messages, tools, and whether the header of the next answer is wanted: the text.
Render = Callable[[Sequence[ChatMessage], Sequence[Any] | None, bool], str]

STRETCH = 100
# Of a conversation's opening, what a short conversation needs to be like it.
_OPENING = 8
# Messages that may be rendered to locate those of one conversation: some 10 to 30 seconds.
_MOST = 1 << 21


class TemplateRefused(ConfigError):
    """A chat template cannot write a conversation, or its tokens cannot be told apart."""


class Starts(NamedTuple):
    """Where each message starts and the last one ends, in characters.

    ``rewritten`` is the first message that the template wrote otherwise before the last user
    message came; None if the text only grew.
    """

    starts: tuple[int, ...]
    rewritten: int | None


class Locator:
    """Finds where the messages lie in the text ``whole``."""

    def __init__(
        self,
        text: Render,
        messages: Sequence[ChatMessage],
        tools: Sequence[Any] | None,
        whole: str,
    ) -> None:
        self._render = text
        self._messages = messages
        self._tools = tools
        self._whole = whole
        roles = [message.get("role") for message in messages]
        self._users = [i for i, role in enumerate(roles) if role == "user"]
        self._answers = [i for i, role in enumerate(roles) if role == "assistant"]
        self._last_user = self._users[-1] if self._users else 0
        self._tail: str | None = None
        self._shared: set[int] = set()
        self._spent = 0

    def starts(self, known: Sequence[int]) -> Starts:
        """Where each message starts; ``known`` is what `Located` says of them.

        `TemplateRefused` when they cannot be told apart.
        """
        count, slow, rewritten = len(self._messages), 0, None
        starts = list(known[:count]) if self._begins(known) else [0]
        while (found := len(starts)) < count:
            if self._spent > _MOST:
                raise TemplateRefused(
                    f"with this chat template {count} messages are too many to tell their tokens "
                    "apart: send fewer"
                )
            if found >= slow:
                slow = found + STRETCH
                if ends := self._stretch(starts):
                    starts, slow = [*starts, *ends], 0
                    continue
            end = self._plain(found)
            if end is None and found <= self._last_user:
                end = self._anchored(found, starts[-1])
                rewritten = found - 1 if rewritten is None else rewritten
            if end is None or end < starts[-1]:
                raise self._refusal(found - 1)
            starts.append(end)
        starts.append(len(self._whole))
        for number, (start, end) in enumerate(pairwise(starts)):
            if not self._holds(number, self._whole[start:end]):
                raise self._refusal(number)
        return Starts(tuple(starts), rewritten)

    def _refusal(self, number: int) -> TemplateRefused:
        return TemplateRefused(
            f"the chat template writes message {number} or those before it otherwise once later "
            "ones follow, so their tokens cannot be told apart"
        )

    def _begins(self, known: Sequence[int]) -> bool:
        """Whether the text goes on from that of the known messages."""
        count = len(known) - 1
        return count == 0 or self._plain(count) == known[-1]

    def _holds(self, number: int, text: str) -> bool:
        """Whether what was said is where it was found, if that is no text a template may reword."""
        message = self._messages[number]
        said = message.get("content")
        verbatim = message.get("role") == "user" or self._shared & {number, number + 1}
        return not verbatim or not isinstance(said, str) or said.strip() in text

    def _joined(self, count: int) -> bool:
        """Whether message ``count`` and the one before are results that may share one turn."""
        pair = self._messages[max(0, count - 1) : count + 1]
        return len(pair) == 2 and all(message.get("role") == "tool" for message in pair)

    def _text(self, messages: Sequence[ChatMessage]) -> str:
        self._spent += len(messages)
        return self._render(messages, self._tools, False)

    def _plain(self, count: int) -> int | None:
        """Where the first ``count`` messages end, if alone they are the beginning of the text.

        A first message that the template refuses alone (a system prompt) is part of the next one.
        """
        try:
            prefix = self._text(self._messages[:count])
        except TemplateRefused:
            return 0 if count == 1 else None
        return self._end(prefix, 0, count)

    def _end(self, text: str, start: int, count: int) -> int | None:
        """Where ``text`` ends, which begins at ``start`` and holds the messages up to ``count``.

        None where the whole text says something else there. Several results that share one turn
        close it only after the last: then it is as far as both texts agree.
        """
        if self._whole.startswith(text, start):
            return start + len(text)
        if not self._joined(count):
            return None
        agree = bisect_left(
            range(len(text)), True, key=lambda i: not self._whole.startswith(text[: i + 1], start)
        )
        self._shared.add(count)
        return start + agree

    def _stretch(self, starts: Sequence[int]) -> list[int]:
        """Where each of the next messages ends, `STRETCH` at most; empty where it is not sure."""
        done = len(starts) - 1
        stop = min(done + STRETCH, len(self._messages) - 1)
        while self._joined(stop):
            stop -= 1
        lead = self._lead(done)
        if lead is None or stop <= max(STRETCH, done + 1) or self._joined(done):
            return []
        try:
            ends = self._read_off(lead, starts[done], range(done + 1, stop + 1))
        except TemplateRefused:
            return []
        sure = ends and ends == sorted(ends) and self._plain(stop) == ends[-1]
        return ends if sure else []

    def _read_off(self, lead: Sequence[ChatMessage], start: int, counts: range) -> list[int]:
        """Where the first ``counts`` messages end, by what each adds to ``lead``."""
        base, ends = self._text(lead), list[int]()
        for count in counts:
            text = self._text([*lead, *self._messages[counts.start - 1 : count]])
            end = self._end(text[len(base) :], start, count) if text.startswith(base) else None
            if end is None:
                return []
            ends.append(end)
        return ends

    def _lead(self, done: int) -> list[ChatMessage] | None:
        """A short conversation that ends as the first ``done`` messages do.

        It has their opening, their last user message with the answer before it, and all from
        their last answer on. None where there is no such answer.
        """
        answer = _before(self._answers, done)
        if answer is None:
            return None
        told, user = list(self._messages[: self._answers[0]][:_OPENING]), _before(self._users, done)
        if user is not None and self._answers[0] < user < answer:
            told += self._messages[_before(self._answers, user) : user + 1]
        return [*told, *self._messages[answer:done]]

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
        return self._text([*self._messages[:count], *self._messages[self._last_user :]])


def _before(numbers: Sequence[int], bound: int) -> int | None:
    """The last of ascending ``numbers`` below ``bound``."""
    at = bisect_left(numbers, bound)
    return numbers[at - 1] if at else None


def _common_start(texts: Sequence[str]) -> str:
    """The longest text that all begin with."""
    first, last = min(texts), max(texts)  # of sorted texts, these differ earliest
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), None)
    return first if same is None else first[:same]
