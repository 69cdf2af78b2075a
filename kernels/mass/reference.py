"""What `key_mass` must equal, in plain torch and in double precision."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..attend.plan import KeyList, Task
from ..attend.reference import attend_rows
from ..checks import Ints
from ..rotation import Turns


def mass_of_keys(
    query: Tensor,
    keys: Tensor,
    lists: Sequence[KeyList],
    tasks: Sequence[Task],
    scale: float,
    turns: Turns | None = None,
    softcap: float | None = None,
) -> Tensor:
    """``[keys of all lists]``: attention to values that name their own key sums to its weight."""
    offsets: Ints = torch.tensor([0, *(len(k.slots) for k in lists)]).cumsum(0).numpy()
    mass = torch.zeros(int(offsets[-1]), dtype=torch.float64)
    for number, listed in enumerate(lists):
        heads, slots, _ = keys.shape
        names = torch.zeros(heads, slots, len(listed.slots), dtype=torch.float64)
        names[:, torch.from_numpy(listed.slots)] = torch.eye(len(listed.slots)).double()
        mine = [task for task in tasks if task.list == number]
        weights = attend_rows(query, keys, names, lists, mine, scale, turns, softcap)
        mass[offsets[number] : offsets[number + 1]] = weights.sum((0, 1))
    return mass
