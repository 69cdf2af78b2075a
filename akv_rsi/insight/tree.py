"""The radix tree of a task's recorded conversations: what their caches have in common.

Its paths spell messages and ops, as the engine's tree spells tokens and ops: conversations share an
edge as long as both agree. It is derived from the record; slots are counted without evictions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from akv_rsi.types import Op, Repos, Segment, Trajectory

Item = Segment | tuple[Op, ...]


@dataclass
class Edge:
    """Messages that follow each other, or the ops of one boundary, and what comes after.

    ``names`` are the conversations that pass through it: its reference count.
    """

    items: list[Item]
    names: list[str]
    children: list[Edge] = field(default_factory=list)

    @property
    def slots(self) -> int:
        """Tokens whose KV lies on this edge."""
        return sum(item.tokens for item in self.items if isinstance(item, Segment))

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Edge]]:
        """This edge and all below it, each with the number of forks above it."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + (len(self.children) > 1))


def tree_of(conversations: Sequence[tuple[str, Trajectory]]) -> list[Edge]:
    """The top edges of the tree of ``(name, conversation)`` pairs."""
    return _grow([(name, _items(trajectory)) for name, trajectory in conversations])


def described(op: Op) -> str:
    """An op marker: what it does to which tokens."""
    if isinstance(op, Repos):
        return "repos"
    tokens = sum(end - start for start, end in op.ranges)
    return f"{type(op).__name__.lower()} {tokens} tokens"


def _items(trajectory: Trajectory) -> list[Item]:
    """Messages in order, and the ops of a call after all that was computed before it."""
    items: list[Item] = []
    known = 0
    for call in trajectory.calls:
        while known < len(trajectory.segments) and trajectory.segments[known].end <= call.reused:
            items.append(trajectory.segments[known])
            known += 1
        if call.ops:
            items.append(call.ops)
    return [*items, *trajectory.segments[known:]]


def _grow(paths: list[tuple[str, list[Item]]]) -> list[Edge]:
    groups: dict[object, list[tuple[str, list[Item]]]] = {}
    for name, items in paths:
        if items:
            groups.setdefault(_key(items[0]), []).append((name, items))
    edges = []
    for group in groups.values():
        shared = _common([items for _, items in group])
        below = _grow([(name, items[shared:]) for name, items in group])
        edges.append(Edge(group[0][1][:shared], [name for name, _ in group], below))
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
