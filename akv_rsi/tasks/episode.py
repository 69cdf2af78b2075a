"""One task under one policy: what is asked for, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from akv_rsi.types import Trajectory, Usage

Split = Literal["train", "validation", "test"]
Outcome = Literal["done", "policy_error", "infrastructure"]


@dataclass(frozen=True, slots=True)
class TaskRef:
    """One task: a suite's name and the seed its environment is made from."""

    suite: str
    seed: int
    split: Split


@dataclass(frozen=True, slots=True)
class Measured:
    """What the engine itself counted and timed for one LLM call; the cost model reads none of it.

    Tokens of the prompt that came from the cache (``cached``), were computed (``prefilled``, of
    which ``refreshed`` again), and were visible to its last token (``attended``); tokens sampled
    (``output``). Seconds to the first token (``ttft``) and between later ones (``itl``).
    """

    prompt: int
    cached: int
    prefilled: int
    refreshed: int
    attended: int
    output: int
    ttft: float
    itl: float


@dataclass(frozen=True, slots=True)
class Episode:
    """The result of one task under one policy.

    ``success`` is 0 or 1 where an environment verifies the task; on a recorded conversation it is
    what its objective says of all calls, from 0 to 1.
    ``outcome``: ``done``; ``policy_error`` (the policy was at fault: counts as a failed task);
    ``infrastructure`` (nobody's fault: never becomes fitness). ``cost`` is in the price model's
    unit. ``in_span`` tells whether the task stays inside the model's reliable span when everything
    is kept; it is a property of the task, not of the policy. ``trajectory`` and ``measured`` (one
    entry per call; times make it differ between runs) are there when they were asked for.
    """

    task: TaskRef
    policy: str
    success: float
    outcome: Outcome
    cost: float
    usage: Usage
    in_span: bool
    detail: str = ""
    trajectory: Trajectory | None = None
    measured: tuple[Measured, ...] = field(default=(), compare=False, repr=False)
