"""What a query sees, kept the slow way: one list entry per token, straight from the contract.

Imports nothing of akv_rsi. An op is a plain tuple: ``("drop", b, ranges)``, ``("restore", b,
ranges)``, ``("repos", b)`` or ``("refresh", b, ranges)``, with ``ranges`` a tuple of half-open
``(start, end)`` pairs. A history is a list of them, by boundary and then in that order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count, groupby
from typing import Any

Range = tuple[int, int]
Op = tuple[Any, ...]
Seen = tuple[int | None, tuple[tuple[int, int, int | None], ...]]

ORDER = ("drop", "restore", "repos", "refresh")


class Illegal(Exception):
    """The contract forbids this op. ``rule`` names why; ``guard`` tells guards from mistakes."""

    def __init__(self, rule: str, guard: bool = False) -> None:
        super().__init__(rule)
        self.rule = rule
        self.guard = guard


def groups(history: Iterable[Op]) -> list[tuple[int, list[Op]]]:
    """The ops of a history, boundary by boundary."""
    return [(b, list(ops)) for b, ops in groupby(history, key=lambda op: op[1])]


def members(ranges: Sequence[Range]) -> list[int]:
    """The tokens in ``ranges``."""
    return [token for start, end in ranges for token in range(start, end)]


def runs(tokens: Iterable[int]) -> tuple[Range, ...]:
    """Ascending tokens as maximal ranges: the inverse of `members`."""
    out: list[Range] = []
    for token in tokens:
        if out and out[-1][1] == token:
            out[-1] = (out[-1][0], token + 1)
        else:
            out.append((token, token + 1))
    return tuple(out)


class Book:
    """Visibility, position and KV version of every token of one sequence.

    ``position[i]`` is None while token ``i`` has no place (dropped before a later Repos).
    ``version[i]`` is a number no other KV ever had. ``seen[i]`` records what that KV was computed
    from: the token's own position and the (token, version, position) of all it could see.
    """

    def __init__(self, pinned: Sequence[Range] = ()) -> None:
        self.visible: list[bool] = []
        self.position: list[int | None] = []
        self.version: list[int] = []
        self.seen: list[Seen] = []
        self.next_position = 0
        self._pinned = set(members(pinned))
        self._fresh = count()

    @property
    def length(self) -> int:
        return len(self.visible)

    def shown(self) -> list[int]:
        """The visible tokens."""
        return [i for i in range(self.length) if self.visible[i]]

    def past(self, token: int) -> Seen:
        """What the KV of ``token`` would be computed from now."""
        before = ((j, self.version[j], self.position[j]) for j in range(token) if self.visible[j])
        return self.position[token], tuple(before)

    def append(self, tokens: int) -> None:
        for _ in range(tokens):
            self.visible.append(True)
            self.position.append(self.next_position)
            self.next_position += 1
            self.version.append(next(self._fresh))
            self.seen.append(self.past(self.length - 1))

    def apply(self, ops: Sequence[Op]) -> list[int]:
        """Applies the ops of one boundary; returns the tokens whose KV a refresh recomputes.

        After an `Illegal` the book is in no defined state.
        """
        self._check_form(ops)
        given = {op[0]: op for op in ops}
        dropped = members(given["drop"][2]) if "drop" in given else []
        restored = members(given["restore"][2]) if "restore" in given else []
        if set(dropped) & set(restored):
            raise Illegal("dropped and restored at one boundary")
        self._drop(dropped)
        self._restore(restored)
        if "repos" in given:
            self._repos()
        if any(self.position[i] is None for i in self.shown()):
            raise Illegal("restored without a place")
        return self._refresh(members(given["refresh"][2])) if "refresh" in given else []

    def _check_form(self, ops: Sequence[Op]) -> None:
        kinds = [ORDER.index(op[0]) for op in ops]
        if kinds != sorted(set(kinds)):
            raise Illegal("out of order")
        for op in ops:
            if op[1] != self.length:
                raise Illegal("not at this boundary")
            if op[0] == "repos":
                continue
            if not op[2]:
                raise Illegal("no ranges")
            if any(start < 0 or end <= start for start, end in op[2]):
                raise Illegal("empty or reversed range")
            if any(end > self.length for _, end in op[2]):
                raise Illegal("past the boundary")
            if any(a[1] > b[0] for a, b in zip(op[2], op[2][1:], strict=False)):
                raise Illegal("overlapping or unsorted ranges")

    def _drop(self, tokens: list[int]) -> None:
        for i in tokens:
            if not self.visible[i]:
                raise Illegal("dropped twice")
            if i in self._pinned:
                raise Illegal("pinned", guard=True)
            self.visible[i] = False
        if tokens and not any(self.visible):
            raise Illegal("nothing left", guard=True)

    def _restore(self, tokens: list[int]) -> None:
        for i in tokens:
            if self.visible[i]:
                raise Illegal("restored while visible")
            self.visible[i] = True

    def _repos(self) -> None:
        self.next_position = 0
        for i in range(self.length):
            self.position[i] = self.next_position if self.visible[i] else None
            self.next_position += self.visible[i]

    def _refresh(self, tokens: list[int]) -> list[int]:
        changed = []
        for i in tokens:
            if not self.visible[i]:
                raise Illegal("refreshed while invisible")
            if self.past(i) != self.seen[i]:
                self.version[i] = next(self._fresh)
                self.seen[i] = self.past(i)
                changed.append(i)
        return changed
