"""From logits to tokens, one row per request, whatever else is in the batch."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from akv_rsi.engine.request import Likely


@dataclass(slots=True)
class Sampling:
    """How one request samples; its random numbers are its own."""

    temperature: float
    seed: int
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def draw(self, logits: Tensor) -> int:
        """A token from ``logits`` ``[vocabulary]`` by inversion of the cumulative distribution."""
        weights = torch.softmax(logits.double() / self.temperature, -1).cumsum(-1)
        threshold = self._random.random() * float(weights[-1])
        token = int(torch.searchsorted(weights, threshold, right=True))
        return min(token, len(weights) - 1)


def sample(logits: Tensor, samplings: Sequence[Sampling]) -> list[int | None]:
    """One token per row of ``logits`` ``[rows, vocabulary]``; None for a row that is not finite."""
    # One reading of the device, if there is one: -1 where a row is not finite, which its extremes
    # show (NaN spreads to them) at a tenth of the cost of looking at every number.
    finite = torch.isfinite(logits.amax(-1)) & torch.isfinite(logits.amin(-1))
    best = torch.where(finite, logits.argmax(-1), -1).tolist()
    tokens: list[int | None] = []
    for row, sampling in enumerate(samplings):
        if best[row] < 0:
            tokens.append(None)
        elif sampling.temperature == 0:
            tokens.append(best[row])
        else:
            tokens.append(sampling.draw(logits[row]))
    return tokens


def likelihoods(
    logits: Tensor, tokens: Sequence[int | None], wanted: Sequence[int | None]
) -> list[Likely | None]:
    """Per row of ``logits`` how likely its token was, with the ``wanted`` likeliest.

    None for rows that want none, and for rows without a token.
    """
    found: list[Likely | None] = []
    for row, (token, count) in enumerate(zip(tokens, wanted, strict=True)):
        if token is None or count is None:
            found.append(None)
            continue
        scores = logits[row].log_softmax(-1)
        values, ids = scores.topk(min(count, len(scores)))
        top = tuple(zip(ids.tolist(), values.tolist(), strict=True))
        found.append(Likely(float(scores[token]), top))
    return found
