"""One file, as readers need it: its head to recognise it by, its lines, its JSON.

Damage is a `Problem` with the line and the reason; what can still be read is.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any, NamedTuple

from akv_rsi.tasks.traces import jsonwalk
from akv_rsi.tasks.traces.content import Json, mapping
from akv_rsi.tasks.traces.jsonwalk import Item, JsonError, JsonWalker

LONGEST_LINE = 1 << 26
# After so many problems only their number is kept: a file of noise must not become a report of it.
MOST_PROBLEMS = 20
_HEAD, _TAIL = 1 << 16, 1 << 12
_ESCAPED = re.compile("[\udc80-\udcff]")


class Problem(NamedTuple):
    """What is wrong with a file, and on which line (0: with all of it)."""

    line: int
    why: str


@dataclass(slots=True)
class Problems:
    """The problems of one file: the first ones, and how many there are in all."""

    first: list[Problem] = field(default_factory=list)
    total: int = 0

    def add(self, line: int, why: str) -> None:
        """One more."""
        self.total += 1
        if len(self.first) < MOST_PROBLEMS:
            self.first.append(Problem(line, why))


class Head:
    """The beginning of a file, its end, and what they show of its JSON."""

    def __init__(self, path: Path, text: str, tail: str) -> None:
        self.path, self.text, self.tail = path, text, tail

    @cached_property
    def lines(self) -> list[Mapping[str, Json]]:
        """The objects that stand alone on a line, up to the first line that is none."""
        found: list[Mapping[str, Json]] = []
        for line in self.text.splitlines():
            if not line.strip():
                continue
            try:
                found.append(mapping(json.loads(line)))
            except (ValueError, RecursionError):
                break
        return found

    @cached_property
    def first(self) -> Mapping[str, Json]:
        """The first object (of a list: its first element), as far as the head shows it."""
        found: list[Json] = []
        chunks = iter((self.text,))
        walker = JsonWalker(lambda _: next(chunks, ""), _Shallow(), empty=True)
        try:
            for item in walker.walk():
                if item.document or (item.path and isinstance(item.path[0], int) and item.path[0]):
                    break
                path = item.path[1:] if item.path[:1] == (0,) else item.path
                _put(found, (0, *path), item.value)
        except JsonError:
            pass  # the head is cut somewhere
        return mapping(found[0]) if found else {}

    def has(self, *keys: str) -> bool:
        """Whether the first object shows all ``keys``."""
        return all(key in self.first for key in keys)


class _Shallow:
    """The paths of containers near the root."""

    def __contains__(self, path: object) -> bool:
        return isinstance(path, tuple) and len(path) <= 3


def _put(into: list[Json] | dict[str, Json], path: jsonwalk.Path, value: Json) -> None:
    """Puts a value where it stood; what stood before it in a list is there already."""
    key, rest = path[0], path[1:]
    if isinstance(into, list):
        if isinstance(key, int) and key == len(into):
            into.append(_shell(rest, value))
        if not rest or not isinstance(into[-1], list | dict):
            return
        _put(into[-1], rest, value)
    elif isinstance(key, str):
        inner = into.setdefault(key, _shell(rest, value))
        if rest and isinstance(inner, list | dict):
            _put(inner, rest, value)


def _shell(rest: jsonwalk.Path, value: Json) -> Json:
    """What a value stands in: itself, or an empty container for the rest of its path."""
    if not rest:
        return value
    return [] if isinstance(rest[0], int) else {}


class Source:
    """A file to read: ``path``, and the ``problems`` met so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems = Problems()
        with path.open("rb") as file:
            found = json.detect_encoding(file.read(4))
        self._encoding = "" if found.startswith("utf-8") else found

    def head(self) -> Head:
        """The beginning and the end of the file."""
        with self.path.open("rb") as file:
            text = file.read(_HEAD)
            file.seek(max(0, self.path.stat().st_size - _TAIL))
            tail = file.read(_TAIL)
        name = self._encoding or "utf-8-sig"
        return Head(self.path, text.decode(name, "replace"), tail.decode("utf-8", "replace"))

    def lines(self) -> Iterator[tuple[int, str]]:
        """Its lines without their ends, numbered from 1."""
        if self._encoding:
            with self.path.open(encoding=self._encoding, errors="replace") as text:
                for number, line in enumerate(text, 1):
                    self._check(line, number)
                    yield number, line.rstrip("\r\n").removeprefix("\ufeff")
            return
        number = 0
        with self.path.open("rb") as file:
            while raw := file.readline(LONGEST_LINE):
                number += 1
                if len(raw) == LONGEST_LINE and not raw.endswith(b"\n"):
                    self.problems.add(number, f"a line of more than {LONGEST_LINE >> 20} MiB")
                    while raw and not raw.endswith(b"\n"):
                        raw = file.readline(LONGEST_LINE)
                    continue
                line = raw.rstrip(b"\r\n").decode("utf-8", "surrogateescape")
                self._check(line, number)
                yield number, line.removeprefix("\ufeff") if number == 1 else line

    def records(self) -> Iterator[tuple[int, Mapping[str, Json]]]:
        """The objects of JSON Lines; a line that holds none is a problem, and left out."""
        for number, line in self.lines():
            if not line or line.isspace():
                continue
            try:
                value: Any = _DECODER.decode(line)
            except RecursionError:
                self.problems.add(number, "it is nested too deeply")
            except ValueError as error:
                self.problems.add(number, f"no JSON: {getattr(error, 'msg', error)}")
            else:
                if isinstance(value, dict):
                    yield number, value
                else:
                    self.problems.add(number, f"a JSON {type(value).__name__}, not an object")

    def walk(self, opened: Container[jsonwalk.Path] = ()) -> Iterator[Item]:
        """Its JSON documents piece by piece; see `JsonWalker`.

        After an error it goes on with the next line if each line is a document; else it ends.
        """
        by_line = self.path.suffix in (".jsonl", ".ndjson")
        with self.path.open("rb") as file:
            walker = JsonWalker(self._text(file), opened)
            while True:
                try:
                    yield from walker.walk()
                    return
                except JsonError as bad:
                    rest = "" if by_line else "; what follows is not read"
                    self.problems.add(bad.line, f"no JSON: {bad}{rest}")
                if not by_line:
                    return
                walker.resync()

    def _text(self, file: IO[bytes]) -> Any:
        name = self._encoding or "utf-8-sig"
        decoder = codecs.getincrementaldecoder(name)(
            "replace" if self._encoding else "surrogateescape"
        )
        line = 1

        def read(want: int) -> str:
            nonlocal line
            raw = file.read(want)
            text = decoder.decode(raw, final=not raw)
            while raw and not text:
                raw = file.read(want)
                text = decoder.decode(raw, final=not raw)
            self._check(text, line)
            line += text.count("\n")
            return text

        return read

    def _check(self, text: str, line: int) -> None:
        """Records bytes that are no text: of UTF-8 they came as lone surrogates."""
        if text.isascii():
            return
        if self._encoding:
            if (place := text.find("\ufffd")) >= 0:
                at = line + text.count("\n", 0, place)
                self.problems.add(at, f"bytes that are no {self._encoding.upper()} are replaced")
            return
        if bad := _ESCAPED.search(text):
            byte = ord(bad.group()) - 0xDC00
            at = line + text.count("\n", 0, bad.start())
            self.problems.add(at, f"byte 0x{byte:02x} is no UTF-8; such bytes are replaced")


_DECODER = json.JSONDecoder(strict=False)
