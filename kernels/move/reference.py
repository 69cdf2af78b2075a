"""What `move` must equal, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import Ints
from ..rotation import Turns


def moved_rows(
    rows: Tensor, source: Ints, turns: Turns | None = None, turn: Ints | None = None
) -> Tensor:
    """``rows[:, source]`` of ``rows`` ``[heads, slots, dim]``, each turned by its turn."""
    picked = rows[:, torch.from_numpy(source).to(rows.device)]
    if turns is None or turn is None:
        return picked
    index = torch.from_numpy(turn).to(rows.device)
    return turns.apply(picked.float(), index).to(rows.dtype)
