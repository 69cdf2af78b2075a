from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from akv_rsi.engine.node import Domain, Match, Node, Path
from akv_rsi.engine.pool import LayerShape, PagePool
from akv_rsi.engine.radix import RadixTree
from akv_rsi.types import Drop, Op, Repos
from akv_rsi.visibility import Visibility

DROP: tuple[Op, ...] = (Drop(6, ((1, 3),)),)
MOVE: tuple[Op, ...] = (Drop(6, ((1, 3),)), Repos(6))


class Forest:
    """A tree on a small pool, with paths put in as a sequence would."""

    def __init__(self, pages: int = 32) -> None:
        self.pool = PagePool([LayerShape(1, 1, 1)], pages, 4, torch.float32)
        self.tree = RadixTree(self.pool)

    def match(self, tokens: list[int], ops: tuple[Op, ...] = (), tenant: str = "") -> Match:
        return self.tree.match(self.tree.root(Domain(tenant)), path(tokens, ops))

    def put(self, tokens: list[int], ops: tuple[Op, ...] = (), tenant: str = "") -> Node:
        """Adds what is missing of a path, and returns its end, locked."""
        whole, match = path(tokens, ops), self.match(tokens, ops, tenant)
        node = self.tree.anchor(match)
        self.tree.lock(node)
        length, groups = match.length, match.groups
        lease = self.pool.lease(len(tokens) - length)
        while length < len(tokens):
            boundary = whole.boundary(groups)
            if boundary == length:
                applied = Visibility().append(length).apply(ops)
                node = self.tree.branch(node, ops, applied, np.empty(0, dtype=np.int64))
                groups += 1
                continue
            stop = min(boundary, len(tokens))
            slots = lease.take(stop - length)
            node = self.tree.append(node, whole.tokens[length:stop], slots, length)
            length = stop
        self.pool.close(lease)
        return node

    def check(self, *cursors: Node) -> None:
        self.pool.check(node.pages for node in self.tree.nodes())
        self.tree.check(list(cursors))


def path(tokens: list[int], ops: tuple[Op, ...] = ()) -> Path:
    groups = ((ops[0].boundary, ops),) if ops else ()
    return Path(np.array(tokens, dtype=np.int64), groups)


def test_a_path_is_found_as_far_as_tokens_and_ops_agree() -> None:
    forest, tokens = Forest(), list(range(12))
    end = forest.put(tokens, DROP)
    assert forest.match(tokens, DROP)[2:] == (12, 1)
    assert forest.match(tokens)[2:] == (6, 0), "the ops are part of the key"
    assert forest.match(tokens, MOVE)[2:] == (6, 0)
    assert forest.match([*tokens[:9], 99], DROP)[2:] == (9, 1)
    assert forest.match(tokens, DROP, tenant="other")[2:] == (0, 0)
    forest.check(end)


def test_ops_at_the_end_of_a_path_are_not_entered() -> None:
    """The logits of the last token precede them."""
    forest, tokens = Forest(), list(range(12))
    end = forest.put(tokens, DROP)
    assert forest.match(tokens[:6], DROP)[2:] == (6, 0)
    forest.check(end)


def test_a_match_modifies_nothing() -> None:
    """PITFALLS 7."""
    forest = Forest()
    end = forest.put(list(range(12)))
    before = [(id(n), n.tokens.tolist(), n.stamp) for n in forest.tree.root(Domain())]
    forest.match([0, 1, 2, 77])
    assert before == [(id(n), n.tokens.tolist(), n.stamp) for n in forest.tree.root(Domain())]
    forest.check(end)


def test_a_fork_shares_its_prefix_and_its_partial_page() -> None:
    forest = Forest()
    one = forest.put([1, 2, 3, 4, 5, 6])
    other = forest.put([1, 2, 3, 9, 9])
    assert forest.match([1, 2, 3, 4, 5, 6]).node is one
    assert other.parent is one.parent
    assert one.parent is not None
    assert one.parent.tokens.tolist() == [1, 2, 3]
    forest.check(one, other)


def test_a_lone_leaf_grows_in_place_and_a_shared_one_does_not() -> None:
    forest = Forest()
    end = forest.put([1, 2, 3])
    forest.tree.unlock(end)
    assert forest.put([1, 2, 3, 4]) is end
    also = forest.put([1, 2, 3, 4])
    assert also is end
    assert forest.put([1, 2, 3, 4, 5]) is not end
    forest.tree.unlock(end)
    assert end.tokens.tolist() == [1, 2, 3, 4]


def test_eviction_takes_the_least_recently_used_leaf_and_nothing_in_use() -> None:
    """PITFALLS 3: what was evicted is not found any more."""
    forest = Forest(pages=8)
    old, new, used = (forest.put([i] * 8) for i in range(3))
    for node in (old, new):
        forest.tree.unlock(node)
    assert not forest.tree.evict(9)
    assert (forest.pool.free_pages, forest.tree.evicted_pages) == (6, 4)
    assert forest.match([2] * 8).length == 8
    forest.check(used)
    forest = Forest(pages=8)
    old, new = (forest.put([i] * 8) for i in range(2))
    forest.tree.unlock(new)
    forest.tree.unlock(old)
    forest.tree.lock(old)
    forest.tree.unlock(old)
    assert forest.tree.evict(6)
    assert (forest.match([0] * 8).length, forest.match([1] * 8).length) == (8, 0)


def test_a_parent_goes_after_its_children_and_was_used_when_they_were() -> None:
    forest = Forest(pages=16)
    stale = forest.put([5] * 8)
    forest.tree.unlock(stale)
    for tail in (8, 9):
        forest.tree.unlock(forest.put([7] * 8 + [tail] * 4))
    assert forest.tree.evict(12)
    assert forest.match([5] * 8).length == 0
    assert forest.match([7] * 8).length == 8
    assert forest.tree.evict(16)
    forest.check()


def test_discard_removes_what_leads_to_nothing_else() -> None:
    """PITFALLS 6: no dead branch stays behind."""
    forest = Forest()
    kept = forest.put([1, 2, 3, 4])
    gone = forest.put([1, 2, 9, 9])
    forest.tree.unlock(gone)
    forest.tree.discard(gone)
    assert forest.match([1, 2, 9, 9]).length == 2
    assert forest.match([1, 2, 3, 4]).length == 4
    forest.check(kept)


@pytest.mark.parametrize("fault", ["lock", "slot", "page", "key"])
def test_check_finds_planted_faults(fault: str) -> None:
    forest = Forest()
    one, other = forest.put([1, 2, 3, 4]), forest.put([1, 2, 9, 9])
    forest.check(one, other)
    if fault == "lock":
        one.locks += 1
    elif fault == "slot":
        other.slots = one.slots
    elif fault == "page":
        one.pages = one.pages[:0]
    else:
        one.key = 5
    with pytest.raises(AssertionError):
        forest.check(one, other)


def test_stale_entries_of_the_eviction_queue_do_not_pile_up() -> None:
    forest = Forest()
    for _ in range(500):
        forest.tree.unlock(forest.put([1, 2, 3]))
    assert len(forest.tree._leaves) < 100
    assert forest.tree.evict(32)


def test_a_prompt_of_64k_tokens_is_matched_in_a_millisecond() -> None:
    forest, tokens = Forest(pages=2**14 + 1), list(range(2**16))
    end, whole = forest.put(tokens), path(tokens)
    best = min(
        _timed(lambda: forest.tree.match(forest.tree.root(Domain()), whole)) for _ in range(20)
    )
    assert best < 1e-3
    assert forest.match(tokens).node is end


def _timed(action: object) -> float:
    start = time.perf_counter()
    action()  # type: ignore[operator]
    return time.perf_counter() - start
