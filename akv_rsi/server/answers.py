"""The tokens that were sampled for each answer: its text, encoded again, can be other ones.

The cache holds what was sampled. When the client sends an answer back and its text is unchanged,
its sampled tokens are put in place of the re-encoded ones, so that the prompt continues what is
cached. Otherwise the conversation forks there, and that is counted. An answer is known by the
prompt it was given to, so nothing is found across conversations or tenants. Another replica, or
this one after a restart, has not sampled anything: it goes on from the re-encoded text.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from akv_rsi.server.prompt import Prompt
from akv_rsi.tasks.template import Rendered


class Answer(NamedTuple):
    """The text a client was given, and the sampled tokens that say it."""

    text: str
    tokens: tuple[int, ...]


class Answers:
    """The latest answers; ``spliced`` and ``forked`` count what became of those that came back."""

    def __init__(self, capacity: int, ends: frozenset[int]) -> None:
        """``ends`` are the tokens that may follow an answer's text."""
        self._capacity = capacity
        self._ends = ends
        self._answers: OrderedDict[bytes, Answer] = OrderedDict()
        self.spliced = 0
        self.forked = 0

    def keep(self, tenant: str, prompt: Sequence[int], answer: Answer) -> None:
        """Remembers what was answered to a prompt."""
        key = _hash(tenant, prompt).digest()
        self._answers[key] = answer
        self._answers.move_to_end(key)
        while len(self._answers) > self._capacity:
            self._answers.popitem(last=False)

    def splice(self, tenant: str, prompt: Prompt) -> Prompt:
        """The prompt, with the sampled tokens of its unchanged answers."""
        rendered = prompt.rendered
        header = rendered.tokens[prompt.length :]
        running, done = _hash(tenant, ()), 0
        for number in prompt.answers:
            start = rendered.starts[number]
            running.update(_bytes(rendered.tokens[done:start]))
            done = start
            asked = running.copy()
            asked.update(_bytes(header))
            answer = self._answers.get(asked.digest())
            if answer is None:
                continue
            spliced = self._spliced(rendered, number, header, answer)
            if spliced is None:
                self.forked += 1
            elif spliced is not rendered:
                self.spliced += 1
                rendered = spliced
        if rendered is prompt.rendered:
            return prompt
        # None begins or ends inside what was spliced: each moves as its message does.
        moved = [
            new - old for old, new in zip(prompt.rendered.starts, rendered.starts, strict=True)
        ]
        marks = tuple(
            mark._replace(
                start=mark.start + moved[mark.message], end=mark.end + moved[mark.message]
            )
            for mark in prompt.marks
        )
        return replace(prompt, rendered=rendered, marks=marks)

    def _spliced(
        self, rendered: Rendered, number: int, header: Sequence[int], answer: Answer
    ) -> Rendered | None:
        """The conversation with that answer's tokens; None when the text there is another."""
        first = rendered.starts[number] + len(header)
        limit = rendered.starts[number + 1]
        if first >= limit or rendered.tokens[first - len(header) : first] != tuple(header):
            return None
        if rendered.tokens[first : first + len(answer.tokens)] == answer.tokens:
            return rendered
        begin = rendered.offsets[first]
        end = begin + len(answer.text)
        last = rendered.token_at(end)
        unchanged = rendered.written.text.startswith(answer.text, begin)
        ended = (
            last < limit and rendered.offsets[last] == end and rendered.tokens[last] in self._ends
        )
        if not (unchanged and ended):
            return None
        grown = len(answer.tokens) - (last - first)
        places = [begin] * len(answer.tokens)
        return Rendered(
            rendered.tokens[:first] + answer.tokens + rendered.tokens[last:],
            tuple(
                start + grown if i > number else start for i, start in enumerate(rendered.starts)
            ),
            (*rendered.offsets[:first], *places, *rendered.offsets[last:]),
            rendered.written,
        )


def _hash(tenant: str, tokens: Sequence[int]) -> hashlib._Hash:
    name = tenant.encode()
    return hashlib.sha256(b"answer %d %s " % (len(name), name) + _bytes(tokens))


def _bytes(tokens: Sequence[int]) -> bytes:
    return array("q", tokens).tobytes()
