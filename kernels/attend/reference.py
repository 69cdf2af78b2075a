"""What `attend` must equal, row by row, in plain torch and in double precision."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..rotation import Turns
from .plan import KeyList, Task


def attend_rows(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    lists: Sequence[KeyList],
    tasks: Sequence[Task],
    scale: float,
    turns: Turns | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """``[rows, query heads, value dim]`` float64.

    ``keys`` ``[kv heads, slots, dim]`` and ``values`` are plain numbers (scales multiplied in).
    """
    group = query.shape[1] // keys.shape[0]
    query, keys, values = query.double(), keys.double(), values.double()
    out = query.new_zeros(*query.shape[:2], values.shape[2])
    for task in tasks:
        slots, runs = lists[task.list]
        index = torch.from_numpy(slots).to(keys.device)
        k = keys[:, index].repeat_interleave(group, 0)
        v = values[:, index].repeat_interleave(group, 0)
        for number, (low, high) in enumerate(task.spans.tolist()):
            x = query[task.start + number]
            scores = x.new_empty(len(x), len(slots))
            for run in runs:
                near = x if turns is None else turns.apply(x, run.turn)
                scores[:, run.begin : run.end] = (
                    torch.einsum("hd,hkd->hk", near, k[:, run.begin : run.end]) * scale
                )
            if softcap is not None:
                scores = softcap * torch.tanh(scores / softcap)
            scores = scores[:, low:high]
            if sinks is not None:
                scores = torch.cat((scores, sinks.double()[:, None]), 1)
            if scores.shape[1]:
                weights = torch.softmax(scores, 1)[:, : high - low]
                out[task.start + number] = torch.einsum("hk,hkd->hd", weights, v[:, low:high])
    return out
