from __future__ import annotations

import torch

from akv_rsi.engine.sampler import Sampling, likelihoods, sample


def test_greedy_takes_the_best_and_flags_what_is_not_finite() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [0.0, float("nan"), 1.0], [float("inf"), 0.0, 0.0]])
    assert sample(logits, [Sampling(0.0, 0)] * 3) == [1, None, None]
    assert sample(torch.empty(0, 3), []) == []


def test_a_seed_repeats_whatever_else_is_in_the_batch() -> None:
    torch.manual_seed(0)
    logits = torch.randn(8, 50)
    alone, among = Sampling(1.0, 7), Sampling(1.0, 7)
    others = [Sampling(0.5, i) for i in range(7)]
    for row in range(8):
        first = sample(logits[row : row + 1], [alone])[0]
        batch = torch.cat((logits[:row], logits[row + 1 :], logits[row : row + 1]))
        assert sample(batch, [*others, among])[-1] == first


def test_frequencies_follow_the_temperature() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0]])
    for temperature in (0.5, 2.0):
        sampling = Sampling(temperature, 1)
        drawn = torch.tensor([sample(logits, [sampling])[0] for _ in range(4000)])
        expected = torch.softmax(logits[0] / temperature, -1)
        assert (torch.bincount(drawn, minlength=3) / 4000 - expected).abs().max() < 0.03


def test_likelihoods_are_those_of_the_model_and_the_likeliest_come_first() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0]] * 4)
    told = likelihoods(logits, [2, 2, None, 0], [2, None, 2, 9])
    expected = torch.log_softmax(logits[0], -1)
    assert told[1] is told[2] is None
    assert told[0].logprob == float(expected[2])
    assert told[0].top == ((1, float(expected[1])), (2, float(expected[2])))
    assert [token for token, _ in told[3].top] == [1, 2, 0]
