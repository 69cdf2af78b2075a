"""Tokenises conversations that grow: what was tokenised before is not tokenised again.

A tokenizer takes its added tokens (such as ``<|im_start|>``) out of a text first, and what stands
between two of them by itself. So where a message starts with one, the text in front of it has the
tokens it always had. That is proved of each such token before it is relied on.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple

# Tokens that are remembered, of all conversations together, at 8 bytes each.
MOST = 1 << 22
_BEFORE = ("", "Yes", "Yes \n", "1\n\n", " é \t", "\n  ")
_BEHIND = ("", "user\nYes", "\n\n1", "  é", "Yes")


class Encoded(NamedTuple):
    """The ids of a text's tokens, and the characters at which they begin."""

    tokens: array[int]
    offsets: array[int]


class Encoder:
    """Encodes with a fast ``tokenizer`` of transformers; remembers ``most`` tokens.

    It is used by one thread at a time.
    """

    def __init__(self, tokenizer: Any, most: int = MOST) -> None:
        self._tokenizer = tokenizer
        self._most = most
        self._size = 0
        self._known: OrderedDict[bytes, Encoded] = OrderedDict()
        self._added: dict[str, Any] = {
            token.content: token for token in tokenizer.added_tokens_decoder.values()
        }
        self._lengths = sorted({len(content) for content in self._added}, reverse=True)
        self._proved: dict[str, bool] = {}

    def encode(self, text: str, starts: Sequence[int], owner: str = "") -> Encoded:
        """The tokens of ``text``, whose messages start at ``starts``; the last one ends the list.

        They are those of the text encoded at once. What one ``owner`` had encoded saves another no
        time. Raises what the tokenizer raises.
        """
        keys = list(_digests(text, starts, owner))
        known = (i for i in range(len(keys) - 1, -1, -1) if keys[i] in self._known)
        longest = next((i for i in known if self._cuts(text, starts[i + 1])), None)
        if longest is None:
            encoded = self._encoded(text)
        else:
            # What goes on from it takes its place: conversations are lines, seldom trees.
            before, start = self._forget(keys[longest]), starts[longest + 1]
            more = self._encoded(text[start:])
            offsets = array("i", (start + offset for offset in more.offsets))
            encoded = Encoded(before.tokens + more.tokens, before.offsets + offsets)
        self._remember(text, starts, keys, encoded)
        return encoded

    def _remember(
        self, text: str, starts: Sequence[int], keys: Sequence[bytes], encoded: Encoded
    ) -> None:
        """Keeps the tokens up to the last message, or header, that starts with a proved token."""
        for i in range(len(keys) - 1, -1, -1):
            start = starts[i + 1]
            if start and self._cuts(text, start):
                count = encoded.offsets.index(start)
                self._known[keys[i]] = Encoded(encoded.tokens[:count], encoded.offsets[:count])
                self._size += count
                break
        while self._size > self._most:
            self._forget(next(iter(self._known)))

    def _forget(self, key: bytes) -> Encoded:
        gone = self._known.pop(key)
        self._size -= len(gone.tokens)
        return gone

    def _cuts(self, text: str, start: int) -> bool:
        """Whether an added token stands at ``start`` that always parts what surrounds it."""
        found = (text[start : start + length] for length in self._lengths)
        content = next((part for part in found if part in self._added), None)
        if content is None:
            return False
        if content not in self._proved:
            self._proved[content] = self._prove(content)
        return self._proved[content]

    def _prove(self, content: str) -> bool:
        token = self._added[content]
        if token.lstrip or token.single_word or token.normalized:
            return False
        others = [other for other in self._added if other != content]
        begins = tuple(content[:length] for length in range(1, len(content)))
        if any(content in other or other.endswith(begins) for other in others):
            return False
        for before, behind in product(_BEFORE, _BEHIND):
            whole = self._encoded(before + content + behind)
            first, rest = self._encoded(before), self._encoded(content + behind)
            offsets = array("i", (len(before) + offset for offset in rest.offsets))
            if whole != Encoded(first.tokens + rest.tokens, first.offsets + offsets):
                return False
        return True

    def _encoded(self, text: str) -> Encoded:
        made = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        offsets = array("i", (start for start, _ in made["offset_mapping"]))
        return Encoded(array("i", made["input_ids"]), offsets)


def _digests(text: str, starts: Sequence[int], owner: str) -> Iterator[bytes]:
    """Names of an owner's text up to where each message ends."""
    running = hashlib.sha256(f"encoded {len(owner)} {owner} {text[: starts[0]]}".encode())
    for start, end in pairwise(starts):
        running.update(text[start:end].encode())
        yield running.digest()
