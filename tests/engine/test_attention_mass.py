"""Where sampled tokens attend, summed over layers and heads, against stock eager attention."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch

from akv_rsi.engine.request import Request
from akv_rsi.types import Drop, OpHistory, Repos

from .tiny import VOCAB, engine, tiny_llama

TEXT = tuple(torch.randint(VOCAB, (60,), generator=torch.Generator().manual_seed(3)).tolist())
PARTS = ((0, 10), (10, 25), (25, 41))


@pytest.mark.parametrize("chunk", [7, 2048])
@torch.no_grad()
def test_shares_are_those_of_stock_attention(chunk: int) -> None:
    request = Request(TEXT[:41], max_new_tokens=4, attention=PARTS)
    (done,) = engine(chunk_tokens=chunk).generate([request])
    stock = deepcopy(tiny_llama())
    stock.set_attn_implementation("eager")
    whole = torch.tensor([(*request.tokens, *done.tokens[:-1])])
    layers = torch.stack(stock(whole, output_attentions=True).attentions)[:, 0]
    mass = layers[:, :, 40:].mean((0, 1, 2))  # the queries from which tokens were sampled
    expected = [float(mass[start:end].sum()) for start, end in PARTS]
    assert done.attention == pytest.approx(expected, abs=1e-5)
    assert 0.5 < sum(done.attention) < 1, "the sampled tokens got the rest"


def test_what_is_dropped_gets_nothing_and_others_are_not_measured() -> None:
    history = OpHistory((Drop(30, ((10, 25),)), Repos(30)))
    tested = engine()
    asked = Request(TEXT[:41], history, max_new_tokens=1, attention=PARTS)
    plain = Request(TEXT[:41], history, max_new_tokens=3)
    measured, other = tested.generate([asked, plain])
    assert measured.attention[1] == 0
    assert sum(measured.attention) == pytest.approx(1)
    assert other.attention == ()
    assert other.tokens[:1] == measured.tokens
    tested.check()
