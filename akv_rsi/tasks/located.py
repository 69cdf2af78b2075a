"""Where the messages of earlier conversations were found, for those that go on from them."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any


class Located:
    """Where the messages of the latest conversations were found, the least recently used going."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._starts: OrderedDict[bytes, array[int]] = OrderedDict()

    def longest(self, keys: Sequence[bytes]) -> Sequence[int]:
        """Of the longest known conversation that begins this one; ``keys`` are those of `digests`.

        Where its messages start and the last one ends, or ``[0]``.
        """
        for key in reversed(keys):
            if (found := self._starts.get(key)) is not None:
                self._starts.move_to_end(key)
                return found
        return [0]

    def put(self, key: bytes, starts: Sequence[int]) -> None:
        """Remembers a conversation whose text only grew."""
        self._starts[key] = array("q", starts)
        self._starts.move_to_end(key)
        while len(self._starts) > self._capacity:
            self._starts.popitem(last=False)


def digests(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None, owner: str
) -> list[bytes]:
    """For each message a name of the ``owner``'s conversation up to and with it."""
    running, out = hashlib.sha256(_bytes([owner, tools])), []
    for message in messages:
        running.update(_bytes(message))
        out.append(running.digest())
    return out


def _bytes(value: Any) -> bytes:
    text = json.dumps(value if value is None else _plain(value), default=repr)
    return b"%d %s" % (len(text), text.encode())


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else list(value)
