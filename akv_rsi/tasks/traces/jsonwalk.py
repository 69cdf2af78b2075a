"""Reads large JSON piece by piece: containers that are asked for are opened, the rest is decoded.

The standard decoder does the work on one element at a time, so memory holds one element and a
buffer, not the document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterator
from typing import Any, NamedTuple

# An element that is longer than this cannot be told from an unfinished string, and is given up.
LARGEST = 1 << 26
_CHUNK = 1 << 20
_SPACE = re.compile(r"[ \t\r\n\ufeff]*")
Path = tuple[str | int, ...]


class Item(NamedTuple):
    """One value: where it is in its document (the first of a file is 0), and on which line."""

    document: int
    path: Path
    value: Any
    line: int


class JsonError(ValueError):
    """The text is no JSON from ``line`` on; the message says why."""

    def __init__(self, why: str, line: int) -> None:
        super().__init__(why)
        self.line = line


class JsonWalker:
    """Walks the JSON documents that ``read`` delivers, one after the other.

    ``opened`` holds the paths of containers to open, with ``"*"`` for a list's elements; the root
    is always opened. ``read`` returns up to so many more characters, and "" at the end. Opened
    containers without elements are values themselves if ``empty``, else they are not mentioned.
    """

    def __init__(
        self, read: Callable[[int], str], opened: Container[Path] = (), empty: bool = False
    ) -> None:
        self._read = read
        self._opened = opened
        self._empty = empty
        self._decoder = json.JSONDecoder(strict=False)
        self._buffer, self._at, self._line = "", 0, 1
        self._done = False
        self._document = 0

    def walk(self) -> Iterator[Item]:
        """The values, in order; raises `JsonError` where the text stops being JSON."""
        while self._peek():
            for path, value, line in self._value((), ()):
                yield Item(self._document, path, value, line)
            self._document += 1

    def resync(self) -> None:
        """After `JsonError`: goes on with the next line, as the beginning of the next document."""
        self._document += 1
        while (end := self._buffer.find("\n", self._at)) < 0:
            self._take(len(self._buffer) - self._at)
            if not self._fill(_CHUNK):
                return
        self._take(end + 1 - self._at)

    def _value(self, path: Path, pattern: Path) -> Iterator[tuple[Path, Any, int]]:
        mark = self._peek()
        if mark in ("{", "[") and (not path or pattern in self._opened):
            yield from self._container(path, pattern, is_list=mark == "[")
        else:
            line = self._line
            yield path, self._decode(), line

    def _container(
        self, path: Path, pattern: Path, is_list: bool
    ) -> Iterator[tuple[Path, Any, int]]:
        self._take(1)
        end, number = "]" if is_list else "}", 0
        while self._peek() != end:
            if number:
                self._expect(",", f"',' or '{end}'")
            key: str | int = number
            if not is_list:
                if self._peek() != '"':
                    raise self._bad(f"expected a key, not {self._peek()!r}")
                key = str(self._decode())
                self._expect(":", "':'")
            yield from self._value((*path, key), (*pattern, "*" if is_list else key))
            number += 1
        if self._empty and not number:
            yield path, [] if is_list else {}, self._line
        self._take(1)

    def _expect(self, mark: str, what: str) -> None:
        found = self._peek()
        if found != mark:
            raise self._bad(f"expected {what}, not {found!r}" if found else "the file ends early")
        self._take(1)

    def _decode(self) -> Any:
        """The next value, decoded as a whole."""
        want = _CHUNK
        while True:
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._at)
            except RecursionError:
                raise self._bad("it is nested too deeply") from None
            except json.JSONDecodeError as error:
                unfinished = error.msg.startswith("Unterminated") or error.pos > (
                    len(self._buffer) - 12
                )
                if not unfinished or len(self._buffer) - self._at > LARGEST:
                    self._take(max(0, error.pos - self._at))
                    raise self._bad(error.msg) from None
            else:
                # A number may go on behind the buffer's end.
                if end < len(self._buffer) or self._done:
                    self._take(end - self._at)
                    return value
            if not self._fill(want):
                raise self._bad("the file ends in the middle of a value")
            want *= 2

    def _peek(self) -> str:
        """The next character that is no white space; "" at the end."""
        while True:
            match = _SPACE.match(self._buffer, self._at)
            end = match.end() if match else self._at
            self._take(end - self._at)
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._fill(_CHUNK):
                return ""

    def _take(self, count: int) -> None:
        self._line += self._buffer.count("\n", self._at, self._at + count)
        self._at += count

    def _fill(self, want: int) -> bool:
        more = self._read(want)
        if not more:
            was_done, self._done = self._done, True
            # One more try at the end: a number needs to know that nothing follows it.
            return not was_done and self._at < len(self._buffer)
        self._buffer, self._at = self._buffer[self._at :] + more, 0
        return True

    def _bad(self, why: str) -> JsonError:
        return JsonError(why, self._line)
