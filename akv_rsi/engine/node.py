"""What the radix tree is made of: the key of a sequence, an edge of the tree, and a match."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from akv_rsi.engine.pool import Ints, PagePool
from akv_rsi.types import Op, Range
from akv_rsi.visibility import Applied

Bools = npt.NDArray[np.bool_]
EMPTY = np.empty(0, dtype=np.int64)
# Stands for a slot where the KV of a token has been evicted; the token stays in the tree.
GONE = -1
Groups = tuple[tuple[int, tuple[Op, ...]], ...]


class Domain(NamedTuple):
    """Whose cache it is: paths of different domains share nothing.

    The serving side sets ``tenant``. A client may choose a ``salt``, which divides its tenant's
    cache further; as a field of its own it can never pass for a tenant.
    """

    tenant: str = ""
    salt: str = ""


class Path(NamedTuple):
    """What a sequence is: its tokens, and the ops of each boundary in ascending order."""

    tokens: Ints
    groups: Groups

    def boundary(self, group: int) -> int:
        """The boundary of the group with that index; past the end when there is none."""
        return self.groups[group][0] if group < len(self.groups) else len(self.tokens) + 1


class Moved(NamedTuple):
    """The position version of a Repos: ``slots`` hold ``tokens``, turned to where they stand."""

    tokens: Ints = EMPTY
    slots: Ints = EMPTY


class Node:
    """One edge and what hangs below it: a run of tokens, or the ops of one boundary.

    A token edge holds ``tokens`` with their ``slots``, rotated at positions from ``birth`` on. An
    op edge holds ``applied`` and the slots of the tokens its Refresh recomputed; it was made
    ``since`` that pass. A slot is `GONE` where the KV has been evicted or not been computed yet.
    In copy mode an op edge with a Repos has ``moved``, which may lack any of its tokens.
    """

    __slots__ = (
        "__weakref__",
        "applied",
        "birth",
        "children",
        "key",
        "locks",
        "moved",
        "pages",
        "parent",
        "since",
        "slots",
        "stamp",
        "tokens",
    )

    def __init__(
        self,
        parent: Node | None,
        key: int | tuple[Op, ...],
        tokens: Ints = EMPTY,
        slots: Ints = EMPTY,
        birth: int = 0,
        applied: Applied | None = None,
    ) -> None:
        self.parent = parent
        self.key = key
        self.tokens = tokens
        self.slots = slots
        self.birth = birth
        self.applied = applied
        self.moved: Moved | None = None
        self.pages = EMPTY
        self.children: dict[int | tuple[Op, ...], Node] = {}
        self.locks = 0
        self.stamp = self.since = 0

    @property
    def is_free_leaf(self) -> bool:
        """Whether nothing hangs below it and nobody stands on it."""
        return self.parent is not None and not self.children and not self.locks

    @property
    def held(self) -> Ints:
        """All its slots."""
        return self.slots if self.moved is None else np.concatenate((self.slots, self.moved.slots))

    def applied_above(self) -> list[Applied]:
        """The states after the op groups on the way to here, this node's included."""
        found: list[Applied] = []
        node: Node | None = self
        while node is not None:
            if node.applied is not None:
                found.append(node.applied)
            node = node.parent
        return found[::-1]

    def check(self, pool: PagePool) -> None:
        """Asserts what must hold of this node by itself."""
        held = self.held[self.held != GONE]
        assert len(set(held.tolist())) == len(held), "one slot twice in a node"
        pages = sorted(pool.pages_of(held).tolist())
        assert sorted(self.pages.tolist()) == pages, "pages differ from the slots"
        renewed = indices(self.applied.refreshed) if self.applied is not None else EMPTY
        assert len(self.slots) == len(self.tokens) + len(renewed), "slots miscounted"
        for key, child in self.children.items():
            assert child.parent is self
            assert child.key == key
            assert child.tokens.size == 0 or child.tokens[0] == key

    def __iter__(self) -> Iterator[Node]:
        """This node and all below it."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())


class Match(NamedTuple):
    """How far a path is cached: ``offset`` tokens into ``node``, ``length`` tokens in all.

    ``groups`` op groups of the path have been passed. It holds as long as the tree's ``cuts`` stay
    what they are; meanwhile more of the path may have been cached.
    """

    node: Node
    offset: int
    length: int
    groups: int


class Step(NamedTuple):
    """An edge on the way to a node: its slots hold ``tokens``, as computed in ``epoch``."""

    node: Node
    epoch: int
    tokens: Ints


def way_to(node: Node) -> list[Step]:
    """The edges from the root to ``node``, in order."""
    edges = []
    while node.parent is not None:
        edges.append(node)
        node = node.parent
    steps, epoch, length = [], 0, 0
    for edge in reversed(edges):
        if edge.applied is None:
            tokens = np.arange(length, length + len(edge.tokens))
            length += len(tokens)
        else:
            epoch += 1
            tokens = indices(edge.applied.refreshed)
        steps.append(Step(edge, epoch, tokens))
    return steps


def indices(ranges: tuple[Range, ...]) -> Ints:
    """The tokens in ``ranges``, ascending."""
    spans = [np.arange(start, end) for start, end in ranges]
    return np.concatenate(spans) if spans else EMPTY


def units(edges: list[Node]) -> tuple[Ints, Ints]:
    """The slots of token edges, and the positions at which they were computed."""
    slots = [edge.slots for edge in edges]
    births = [np.arange(edge.birth, edge.birth + len(edge.slots)) for edge in edges]
    return np.concatenate([EMPTY, *slots]), np.concatenate([EMPTY, *births])


def common_length(left: Ints, right: Ints) -> int:
    """The length of the common prefix."""
    size = min(len(left), len(right))
    if left[:size].tobytes() == right[:size].tobytes():  # by far the quickest, and mostly true
        return size
    return int((left[:size] != right[:size]).argmax())
