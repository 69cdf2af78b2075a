"""One task under one policy: what is asked for, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from akv_rsi.types import Trajectory, Usage

Split = Literal["train", "validation", "test"]


@dataclass(frozen=True, slots=True)
class TaskRef:
    """One task: a suite's name and the seed its environment is made from."""

    suite: str
    seed: int
    split: Split


@dataclass(frozen=True, slots=True)
class Episode:
    """The result of one task under one policy.

    ``outcome``: ``done``; ``policy_error`` (the policy was at fault: counts as a failed task);
    ``infrastructure`` (nobody's fault: never becomes fitness). ``cost`` is in the price model's
    unit. ``in_span`` tells whether the task stays inside the model's reliable span when everything
    is kept; it is a property of the task, not of the policy.
    """

    task: TaskRef
    policy: str
    success: bool
    outcome: Literal["done", "policy_error", "infrastructure"]
    cost: float
    usage: Usage
    in_span: bool
    detail: str = ""
    trajectory: Trajectory | None = None
