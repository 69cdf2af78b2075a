"""A packed linear layer is the linear layer it was made from, for any number of rows."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from akv_rsi.engine.linear import MOST_ROWS, PackedLinear, pack_linears

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this torch cannot pack"
)


@pytest.mark.parametrize("rows", [1, 2, 7, MOST_ROWS, MOST_ROWS + 1])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_it_gives_the_same_rows(rows: int, bias: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(rows)
    plain = nn.Linear(33, 19, bias=bias).to(dtype)
    x = torch.randn(1, rows, 33).to(dtype)
    got, expected = PackedLinear(plain)(x), plain(x)
    assert got.shape == expected.shape
    assert got.dtype == dtype
    assert (got - expected).abs().max() <= (1e-5 if dtype == torch.float32 else 2e-2)


def test_all_linear_layers_are_packed_and_their_weights_keep_their_names() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 4), nn.ReLU()))
    before = model.state_dict()
    pack_linears(model)
    assert [type(m) for m in model.modules()].count(PackedLinear) == 2
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(model.state_dict()[name], before[name]) for name in before)
