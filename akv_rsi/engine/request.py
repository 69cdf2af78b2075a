"""What goes into the engine and what comes out: one LLM call each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from akv_rsi.types import OpHistory, Range


@dataclass(frozen=True, slots=True)
class Request:
    """One LLM call on the engine: the whole conversation so far and its cumulative ops.

    ``tokens`` is the full logical prompt; the engine finds what is cached. ``pinned`` ranges may
    not be dropped. ``temperature`` 0 is greedy; otherwise ``seed`` makes sampling repeatable,
    whatever else runs in the batch. Cached KV is shared only within ``tenant``.
    """

    tokens: Sequence[int]
    history: OpHistory = field(default_factory=OpHistory)
    max_new_tokens: int = 16
    stop: frozenset[int] = frozenset()
    temperature: float = 0.0
    seed: int = 0
    pinned: tuple[Range, ...] = ()
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class Completion:
    """What the engine answered. ``tokens`` includes the stop token when one was sampled.

    ``cached`` prompt tokens came from the cache and ``computed`` were prefilled (refreshed ones
    included); ``attended`` tokens were visible to the last prompt token. Times are seconds:
    ``ttft`` from submission to the first token, ``itl`` the mean gap between later ones.
    """

    tokens: tuple[int, ...]
    finish: Literal["stop", "length"]
    cached: int
    computed: int
    refreshed: int
    attended: int
    ttft: float
    itl: float


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counts since the engine started cold, in tokens and pages.

    ``cached`` and ``computed`` split the ``prompt`` tokens of finished requests; ``refreshed`` ones
    are computed besides.
    """

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    computed_tokens: int = 0
    refreshed_tokens: int = 0
    output_tokens: int = 0
    passes: int = 0
    rows: int = 0
    evicted_pages: int = 0
    pages_free: int = 0
