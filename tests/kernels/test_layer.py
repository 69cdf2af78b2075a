from __future__ import annotations

import pytest
import torch
from akv_rsi.kernels.attend.triton import Store
from akv_rsi.kernels.errors import KernelArgumentError
from akv_rsi.kernels.layer.reference import gated_rows, normed_rows, put_rows, turned_heads
from akv_rsi.kernels.layer.triton import gate, norm, put, turn
from torch import Tensor

from .problems import DEVICE

DTYPES = [torch.float32, torch.bfloat16]


def draw(*size: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*size, generator=generator).to(DEVICE, dtype)


def close(ours: Tensor, theirs: Tensor) -> bool:
    """Equal up to one rounding of the type."""
    step = 1e-5 if ours.dtype == torch.float32 else 1e-2
    return torch.allclose(ours.float(), theirs.float(), rtol=step, atol=step)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [48, 257])
def test_rows_are_normed_and_gated(dtype: torch.dtype, dim: int) -> None:
    x, weight = draw(3, dim, dtype=dtype), draw(dim, dtype=dtype, seed=1)
    assert close(norm(x, weight, 1e-6), normed_rows(x, weight, 1e-6))
    gates = draw(3, 2 * dim, dtype=dtype, seed=2)
    assert close(gate(gates), gated_rows(gates))


@pytest.mark.parametrize("dtype", DTYPES)
def test_heads_of_a_wider_product_are_turned(dtype: torch.dtype) -> None:
    wide, angles = draw(3, 5 * 24, dtype=dtype), draw(2, 3, 24, dtype=dtype, seed=1)
    ours = turn(wide[:, 24:96], *angles, dim=24, queries=2)
    theirs = turned_heads(wide[:, 24:96].reshape(3, 3, 24), *angles)
    assert close(ours[0], theirs[:, :2])
    assert close(ours[1], theirs[:, 2:])


def test_rows_are_put_where_they_belong() -> None:
    store = Store(draw(3, 20, 16).transpose(0, 1).contiguous().transpose(0, 1), draw(3, 20, 24))
    expected = [store.keys.clone(), store.values.clone()]
    keys, values = draw(4, 3, 16, seed=1).transpose(0, 1), draw(3, 4, 24, seed=2)
    slots = torch.tensor([7, 0, 19, 3], device=DEVICE)
    put(store, keys, values, slots)
    for kept, rows in zip(expected, (keys, values), strict=True):
        put_rows(kept, None, rows, slots)
    assert torch.equal(store.keys, expected[0])
    assert torch.equal(store.values, expected[1])


def test_rows_are_rounded_where_codes_are_stored() -> None:
    """One row is zeros, one is no numbers; in between a code may be off by one."""

    def empty() -> Store:
        codes = [torch.full((3, 9, dim), 77, dtype=torch.int8, device=DEVICE) for dim in (16, 24)]
        return Store(*codes, *(torch.full((3, 9), 0.5, device=DEVICE) for _ in codes))

    ours, theirs = empty(), empty()
    keys, values = draw(3, 4, 16), draw(3, 4, 24, seed=2)
    keys[:, 1], keys[1, 2, 5] = 0, torch.nan
    slots = torch.tensor([7, 0, 8, 3], device=DEVICE)
    put(ours, keys, values, slots)
    assert theirs.key_scales is not None
    assert ours.key_scales is not None
    put_rows(theirs.keys, theirs.key_scales, keys, slots)
    put_rows(theirs.values, theirs.value_scales, values, slots)
    assert torch.allclose(ours.key_scales, theirs.key_scales, equal_nan=True)
    assert bool(ours.key_scales[1, 8].isnan())
    assert int((ours.values.int() - theirs.values.int()).abs().max()) <= 1
    sane = [0, 1, 2, 3, 4, 5, 6, 7]
    assert int((ours.keys[:, sane].int() - theirs.keys[:, sane].int()).abs().max()) <= 1


def test_arguments_that_do_not_fit_are_refused() -> None:
    x = draw(3, 8)
    with pytest.raises(KernelArgumentError, match="a weight for each"):
        norm(x, draw(7), 1e-6)
    with pytest.raises(KernelArgumentError, match="contiguous"):
        gate(x.T)
    with pytest.raises(KernelArgumentError, match="come in pairs"):
        gate(draw(3, 7))
    with pytest.raises(KernelArgumentError, match="no whole heads"):
        turn(x, draw(3, 6), draw(3, 6), dim=6, queries=1)
    with pytest.raises(KernelArgumentError, match="angles must be"):
        turn(x, draw(3, 8), draw(2, 8), dim=8, queries=1)
    with pytest.raises(KernelArgumentError, match="2 of 1 heads"):
        turn(x, draw(3, 8), draw(3, 8), dim=8, queries=2)
    store, slots = Store(draw(2, 9, 16), draw(2, 9, 16)), torch.zeros(3, dtype=torch.long)
    with pytest.raises(KernelArgumentError, match="do not fit"):
        put(store, draw(2, 4, 16), draw(2, 4, 16), slots)
    with pytest.raises(KernelArgumentError, match="of type"):
        put(store, draw(2, 3, 16).half(), draw(2, 3, 16).half(), slots)
