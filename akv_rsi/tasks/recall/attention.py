"""How much each token looked at what will be dropped: stock attention on the whole transcript."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from akv_rsi.tasks.agent import ChatFormat
from akv_rsi.tasks.recall.transcript import Recall
from akv_rsi.tasks.recall.variants import joined, values
from akv_rsi.types import Range

Floats = NDArray[np.float64]
# The share of each token's attention that falls on the tools' results: mean of layers and heads.
Mass = Callable[[Recall], Floats]


def stock_mass(folder: Path) -> Mass:
    """Measures with unmodified transformers; memory grows with the square of the length."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()

    def mass(recall: Recall) -> Floats:
        tokens = torch.tensor([recall.tokens])
        with torch.inference_mode():
            layers = model(tokens, output_attentions=True, use_cache=False).attentions
        gone = np.zeros(len(recall.tokens), dtype=bool)
        for number in recall.results:
            gone[slice(*recall.spans[number])] = True
        seen = torch.from_numpy(gone)
        shares = [layer[0, :, :, seen].sum(-1).mean(0) for layer in layers]
        found: Floats = torch.stack(shares).mean(0).double().numpy()
        return found

    return mass


def attending(mass: Mass) -> Callable[[Recall, ChatFormat], Sequence[Range]]:
    """Of each note the tokens that looked most at the results: as many as its numbers have."""

    def chosen(recall: Recall, chat: ChatFormat) -> list[Range]:
        shares = mass(recall)
        numbers = values(recall, chat)
        picked = list[int]()
        for note in recall.notes:
            start, end = recall.spans[note]
            count = sum(min(b, end) - max(a, start) for a, b in numbers if start <= a < end)
            picked += (start + np.argsort(-shares[start:end], kind="stable")[:count]).tolist()
        return joined([(token, token + 1) for token in sorted(picked)])

    return chosen
