"""The radix tree of a task's recorded conversations: what their caches have in common.

Its paths spell messages and ops, as the engine's tree spells tokens and ops: conversations share an
edge as long as both agree. It is derived from the record: what one engine that evicts nothing would
hold of them after the last call, whose own answer is not kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from akv_rsi.types import Op, Repos, Segment, Trajectory
from akv_rsi.visibility import Visibility


class Marker(NamedTuple):
    """The ops of one boundary, and how many tokens their Refresh computed again: its slots."""

    ops: tuple[Op, ...]
    slots: int


Item = Segment | Marker


@dataclass
class Edge:
    """Messages that follow each other, or the ops of one boundary, and what comes after.

    ``names`` are the conversations that pass through it: its reference count. KV was computed of
    the tokens before ``computed``, the longest prompt among them.
    """

    items: list[Item]
    names: list[str]
    computed: int
    children: list[Edge] = field(default_factory=list)

    @property
    def slots(self) -> int:
        """Tokens whose KV lies on this edge."""
        return sum(
            item.slots
            if isinstance(item, Marker)
            else max(0, min(item.end, self.computed) - item.start)
            for item in self.items
        )

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Edge]]:
        """This edge and all below it, each with the number of forks above it."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + (len(self.children) > 1))


def tree_of(conversations: Sequence[tuple[str, Trajectory]]) -> list[Edge]:
    """The top edges of the tree of ``(name, conversation)`` pairs."""
    return _grow([_Path(name, _items(talk), _computed(talk)) for name, talk in conversations])


def described(op: Op) -> str:
    """An op marker: what it does to which tokens."""
    if isinstance(op, Repos):
        return "repos"
    tokens = sum(end - start for start, end in op.ranges)
    return f"{type(op).__name__.lower()} {tokens} tokens"


def _items(trajectory: Trajectory) -> list[Item]:
    """Messages in order, and the ops of a call after all that was computed before it.

    A policy that edits the text has no ops.
    """
    items: list[Item] = []
    state, known = Visibility(), 0
    for call in trajectory.calls:
        while known < len(trajectory.segments) and trajectory.segments[known].end <= call.reused:
            items.append(trajectory.segments[known])
            known += 1
        if call.ops:
            applied = state.apply(call.ops)
            items.append(Marker(call.ops, sum(end - start for start, end in applied.refreshed)))
            state = applied.visibility
        state = state.append(call.prompt + call.output - call.reused)
    return [*items, *trajectory.segments[known:]]


def _computed(trajectory: Trajectory) -> int:
    return max((call.prompt for call in trajectory.calls if not call.auxiliary), default=0)


class _Path(NamedTuple):
    """What is left of a conversation below some edge."""

    name: str
    items: list[Item]
    computed: int


def _grow(paths: list[_Path]) -> list[Edge]:
    groups: dict[object, list[_Path]] = {}
    for path in paths:
        if path.items:
            groups.setdefault(_key(path.items[0]), []).append(path)
    edges = []
    for group in groups.values():
        shared = _common([path.items for path in group])
        below = _grow([path._replace(items=path.items[shared:]) for path in group])
        names, computed = [path.name for path in group], max(path.computed for path in group)
        edges.append(Edge(group[0].items[:shared], names, computed, below))
    return edges


def _common(paths: list[list[Item]]) -> int:
    """How far all agree; an edge of ops ends where the ops do, and so does one before ops."""
    length = min(len(items) for items in paths)
    for i in range(length):
        keys = {_key(items[i]) for items in paths}
        ops_here = not isinstance(paths[0][i], Segment)
        if len(keys) > 1 or (i > 0 and ops_here):
            return i
        if ops_here:
            return 1
    return length


def _key(item: Item) -> object:
    return (item.kind, item.text, item.start) if isinstance(item, Segment) else item
