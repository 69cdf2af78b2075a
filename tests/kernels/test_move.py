from __future__ import annotations

import numpy as np
import pytest
import torch
from akv_rsi.kernels.attend.triton import Store
from akv_rsi.kernels.errors import KernelArgumentError
from akv_rsi.kernels.move.reference import moved_rows
from akv_rsi.kernels.move.triton import make_gather, make_moves, move
from akv_rsi.kernels.rotation import rotary_turns

from .problems import DEVICE, plain, quantise

SOURCE = np.array([3, 40, 7, 8, 21] * 8)[:37] + np.arange(37)
TARGET = 100 + np.random.default_rng(0).permutation(37)


def make_store(dtype: torch.dtype = torch.float32, dim: int = 48, slots: int = 140) -> Store:
    generator = torch.Generator().manual_seed(dim)
    rows = [torch.randn(2, slots, d, generator=generator).to(DEVICE) for d in (dim, 32)]
    if dtype == torch.int8:
        (keys, key_scales), (values, value_scales) = (quantise(r, dtype) for r in rows)
        return Store(keys, values, key_scales, value_scales)
    return Store(rows[0].to(dtype), rows[1].to(dtype))


def poisoned(like: Store, dtype: torch.dtype) -> Store:
    return Store(
        torch.full_like(like.keys, torch.nan, dtype=dtype),
        torch.full_like(like.values, torch.nan, dtype=dtype),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_page_copy_is_exact_and_touches_nothing_else(dtype: torch.dtype) -> None:
    source = make_store(dtype)
    target = poisoned(source, dtype)
    move(source, target, make_moves(SOURCE, TARGET, device=DEVICE))
    for mine, other in ((source.keys, target.keys), (source.values, target.values)):
        assert torch.equal(other[:, torch.from_numpy(TARGET)].cpu(), moved_rows(mine, SOURCE).cpu())
        assert int(torch.isfinite(other).sum()) == other.shape[0] * len(TARGET) * other.shape[2]


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_repos_copy_turns_keys_from_birth(interleaved: bool) -> None:
    source = make_store()
    target = poisoned(source, torch.float32)
    turns = rotary_turns(np.array([0, 5, -300]), 48, 32, interleaved, device=DEVICE)
    turn = np.arange(37) % 3
    move(source, target, make_moves(SOURCE, TARGET, turn, DEVICE), turns)
    expected = moved_rows(source.keys, SOURCE, turns, turn)
    moved = target.keys[:, torch.from_numpy(TARGET)]
    assert float((moved - expected).abs().max()) < 1e-5
    values = target.values[:, torch.from_numpy(TARGET)]
    assert torch.equal(values, moved_rows(source.values, SOURCE))


@pytest.mark.parametrize("turn", [np.arange(37) // 12, np.arange(37) % 3], ids=["runs", "mixed"])
def test_keys_that_turn_by_halves(turn: np.ndarray) -> None:
    """Tiles of one turn and of several; quantised rows turn on their way to a plain store."""
    turns = rotary_turns(np.array([7, 5, -300, 2]), 64, device=DEVICE)
    assert turns.halves
    moves = make_moves(SOURCE, TARGET, turn, DEVICE)
    for source in (make_store(dim=64), make_store(torch.int8, dim=64)):
        target = poisoned(make_store(dim=64), torch.float32)
        move(source, target, moves, turns)
        rows = plain(source.keys, source.key_scales)
        expected = moved_rows(rows.to(DEVICE), SOURCE, turns, turn)
        moved = target.keys[:, torch.from_numpy(TARGET)]
        assert float((moved - expected).abs().max()) < 1e-5
        assert int(torch.isfinite(target.keys).sum()) == moved.numel()


def test_quantised_rows_move_with_their_scales_or_become_plain() -> None:
    source, dense = make_store(torch.int8), poisoned(make_store(), torch.float32)
    parts = (source.keys, source.values, source.key_scales, source.value_scales)
    copy = Store(*(torch.zeros_like(part) for part in parts if part is not None))
    move(source, copy, make_moves(SOURCE, TARGET, device=DEVICE))
    move(source, dense, make_gather(SOURCE, device=DEVICE))
    expected = plain(source.keys, source.key_scales)[:, SOURCE]
    assert torch.equal(plain(copy.keys, copy.key_scales)[:, TARGET], expected)
    assert torch.equal(dense.keys[:, :37].cpu(), expected)


def test_within_one_store() -> None:
    store = make_store()
    before = store.keys.clone()
    move(store, store, make_moves(SOURCE, TARGET, device=DEVICE))
    assert torch.equal(store.keys[:, TARGET], before[:, SOURCE])


def test_moves_that_would_destroy_something_are_refused() -> None:
    store, other = make_store(), make_store(torch.float16)
    with pytest.raises(KernelArgumentError, match="written twice"):
        make_moves(np.array([1, 2]), np.array([5, 5]))
    with pytest.raises(KernelArgumentError, match="both read and written"):
        move(store, store, make_moves(np.array([1, 2]), np.array([2, 3]), device=DEVICE))
    with pytest.raises(KernelArgumentError, match="read past"):
        move(store, store, make_moves(np.array([140]), np.array([2]), device=DEVICE))
    with pytest.raises(KernelArgumentError, match="written past"):
        move(store, store, make_moves(np.array([1]), np.array([140]), device=DEVICE))
    with pytest.raises(KernelArgumentError, match="do not convert"):
        move(store, other, make_gather(np.array([1]), device=DEVICE))
    with pytest.raises(KernelArgumentError, match="outside"):
        make_gather(np.array([-1]))
    turns = rotary_turns(np.array([1]), 48, device=DEVICE)
    with pytest.raises(KernelArgumentError, match="belong together"):
        move(store, make_store(), make_gather(np.array([1]), device=DEVICE), turns)
    gather = make_gather(np.array([1]), np.array([3]), DEVICE)
    with pytest.raises(KernelArgumentError, match="only 1 turns"):
        move(store, make_store(), gather, turns)
    small, same = make_store(torch.int8), make_store(torch.int8)
    still = make_gather(np.array([1]), np.array([0]), DEVICE)
    with pytest.raises(KernelArgumentError, match="cannot be turned"):
        move(small, same, still, turns)
