from __future__ import annotations

import pytest
import torch

from akv_rsi.config import EngineConfig
from akv_rsi.engine.pool import NULL_SLOT, LayerShape, PagePool
from akv_rsi.engine.storage import Stored, rounded, unrounded
from akv_rsi.errors import ConfigError


def vectors(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_no_component_is_off_by_more_than_half_a_scale_of_its_own_head() -> None:
    x = vectors(3, 50, 32) * torch.tensor([1e-6, 1.0, 1e4])[:, None, None]
    codes, scales = rounded(x)
    assert scales.shape == (3, 50)
    assert (codes.abs().amax(-1) == 127).all()
    assert ((unrounded(codes, scales, x.dtype) - x).abs() <= 0.5001 * scales[..., None]).all()


def test_nothing_stays_nothing_and_what_is_no_number_reads_as_none() -> None:
    x = torch.zeros(1, 3, 4)
    x[0, 1, 2], x[0, 2, 0] = float("nan"), float("inf")
    back = unrounded(*rounded(x), torch.float32)[0]
    assert not back[0].any()
    assert not back[1].isfinite().any()
    assert not back[2].isfinite().any()


def test_what_is_written_is_returned_as_it_will_be_read() -> None:
    stored = Stored(2, 12, 8, torch.bfloat16, torch.device("cpu"), int8=True)
    slots, x = torch.tensor([9, 2, 5]), vectors(2, 3, 8).bfloat16()
    written = stored.write(slots, x)
    assert written.dtype == torch.bfloat16
    assert torch.equal(stored.read(slots), written)
    assert not torch.equal(written, x)


@pytest.mark.parametrize("int8", [False, True])
def test_a_copy_is_bit_by_bit(int8: bool) -> None:
    pool = PagePool([LayerShape(2, 8, 4)] * 2, 4, 4, torch.float32, int8=int8)
    lease = pool.lease(6)
    slots = torch.from_numpy(lease.slots)
    for seed, layer in enumerate(pool.layers):
        layer.keys.write(slots[:3], vectors(2, 3, 8, seed=seed) * 10**seed)
        layer.values.write(slots[:3], vectors(2, 3, 4, seed=seed + 9))
    pool.copy(lease.slots[:3], lease.slots[3:])
    for layer in pool.layers:
        for stored in layer:
            assert torch.equal(stored.read(slots[3:]), stored.read(slots[:3]))
    assert not pool.layers[0].keys.read(torch.tensor([NULL_SLOT])).any()


def test_turning_the_query_adds_nothing_to_the_rounding_and_turning_the_key_does() -> None:
    """A score's error: rounded once, whatever the delta; rounded twice when copied."""
    query, key, angle = vectors(4000, 2), vectors(4000, 2, seed=1), torch.tensor(0.7)
    turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()]).view(2, 2)
    once = unrounded(*rounded(key), key.dtype)
    twice = unrounded(*rounded(once @ turn.T), key.dtype)
    exact = (query * (key @ turn.T)).sum(-1)

    def error(scores: torch.Tensor) -> float:
        return float((scores - exact).pow(2).mean().sqrt())

    plain = float((query * (once - key)).sum(-1).pow(2).mean().sqrt())
    assert error(((query @ turn) * once).sum(-1)) == pytest.approx(plain, rel=0.05)
    assert error((query * twice).sum(-1)) > 1.2 * plain


def test_other_ways_to_keep_kv_and_copies_of_codes_on_a_gpu_are_refused() -> None:
    with pytest.raises(ConfigError, match="auto or int8, not fp8"):
        EngineConfig(kv_dtype="fp8")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="codes do not turn"):
        EngineConfig(kv_dtype="int8", device="cuda", repos_mode="copy")
