from __future__ import annotations

import numpy as np
import pytest
import torch

from akv_rsi.engine.pool import NULL_SLOT, RESERVED, LayerShape, PagePool


@pytest.fixture
def pool() -> PagePool:
    return PagePool([LayerShape(1, 2, 2)] * 2, pages=6, page_size=4, dtype=torch.float32)


def test_a_lease_takes_as_many_pages_as_it_needs_and_returns_them(pool: PagePool) -> None:
    lease = pool.lease(9)
    assert (len(lease.slots), len(lease.pages), pool.free_pages) == (9, 3, 3)
    pool.check([lease.pages])
    pool.close(lease)
    assert pool.free_pages == 6
    pool.check([])


def test_a_sequence_continues_in_its_own_partial_page(pool: PagePool) -> None:
    first = pool.lease(6)
    first.take(6)
    last = int(first.slots[-1])
    assert (pool.pages_needed(2, last), pool.pages_needed(3, last)) == (0, 1)
    second = pool.lease(3, last)
    assert second.slots[0] == last + 1
    assert second.slots[1] == last + 2
    pool.check([first.pages, second.pages])


def test_a_fork_never_writes_behind_anothers_claim(pool: PagePool) -> None:
    """PITFALLS 1: two sequences that share a partial page must not both fill it."""
    shared = pool.lease(6)
    shared.take(6)
    last = int(shared.slots[-1])
    one, other = pool.lease(1, last), pool.lease(1, last)
    assert one.slots[0] == last + 1
    assert other.slots[0] // 4 not in shared.pages
    one.take(1)
    pool.close(one)
    assert pool.pages_needed(1, last) == 1, "a used slot stays claimed after its lease"


def test_what_a_lease_did_not_use_can_be_claimed_again(pool: PagePool) -> None:
    shared = pool.lease(5)
    shared.take(5)
    last = int(shared.slots[-1])
    unused = pool.lease(6, last)
    unused.take(1)
    pool.close(unused)
    again = pool.lease(2, last + 1)
    assert again.slots.tolist() == [last + 2, last + 3]
    pool.check([shared.pages, again.pages])


def test_pages_live_as_long_as_anybody_holds_them(pool: PagePool) -> None:
    """PITFALLS 4: no double free."""
    lease = pool.lease(8)
    pool.retain(lease.pages[:1])
    pool.close(lease)
    assert pool.free_pages == 5
    pool.release(lease.pages[:1])
    assert pool.free_pages == 6
    pool.check([])


def test_reserved_slots_are_never_granted(pool: PagePool) -> None:
    lease = pool.lease(24)
    assert lease.slots.min() >= RESERVED * 4
    assert NULL_SLOT < pool.scratch_slot < RESERVED * 4
    assert pool.token_bytes == 2 * 2 * 2 * 4


@pytest.mark.parametrize("fault", ["skipped", "doubled", "leaked"])
def test_check_finds_a_wrong_count(pool: PagePool, fault: str) -> None:
    lease = pool.lease(4)
    held = [lease.pages]
    if fault == "skipped":
        pool.refs[lease.pages] -= 1
    elif fault == "doubled":
        pool.retain(lease.pages)
    else:
        pool._free.pop()
    with pytest.raises(AssertionError):
        pool.check(held)


def test_pages_of_lists_each_page_once(pool: PagePool) -> None:
    assert pool.pages_of(np.array([9, 10, 11, 12, 20, 21])).tolist() == [2, 3, 5]
    assert pool.pages_of(np.array([], dtype=np.int64)).tolist() == []
