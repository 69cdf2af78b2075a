"""What goes into the engine and what comes out: one LLM call each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from akv_rsi.types import Op, OpHistory, Range, Restore


class Likely(NamedTuple):
    """How likely the model held a sampled token: natural logarithms, whatever the temperature.

    ``top`` are the most likely tokens in its place, the likeliest first.
    """

    logprob: float
    top: tuple[tuple[int, float], ...]


class Sampled(NamedTuple):
    """Tokens a request has sampled; ``likely`` one by one, if the request asked for it."""

    tokens: tuple[int, ...]
    likely: tuple[Likely, ...] = ()

    def since(self, count: int) -> Sampled:
        """All but the first ``count``."""
        return Sampled(self.tokens[count:], self.likely[count:])


@dataclass(frozen=True, slots=True)
class Request:
    """One LLM call on the engine: the whole conversation so far and its cumulative ops.

    ``tokens`` is the full logical prompt; the engine finds what is cached. ``pinned`` ranges may
    not be dropped. ``temperature`` 0 is greedy; otherwise ``seed`` makes sampling repeatable,
    whatever else runs in the batch. Cached KV is shared only within ``tenant``, which the serving
    side sets, and ``salt``, which its client may choose.

    ``attention`` names ranges of the prompt whose share of attention is wanted: it costs the
    request its place among those that decode from dense copies. ``logprobs`` asks how likely each
    sampled token was, and that many likeliest ones in its place.
    """

    tokens: Sequence[int]
    history: OpHistory = field(default_factory=OpHistory)
    max_new_tokens: int = 16
    stop: frozenset[int] = frozenset()
    temperature: float = 0.0
    seed: int = 0
    pinned: tuple[Range, ...] = ()
    tenant: str = ""
    attention: tuple[Range, ...] = ()
    salt: str = ""
    logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """What the engine answered. ``tokens`` includes the stop token when one was sampled.

    ``cached`` prompt tokens were not computed for the first time in this call; ``computed`` were
    prefilled, ``refreshed`` and ``recovered`` ones (whose KV had been there and was lost) included.
    ``attended`` tokens were visible to the last prompt token, ``restored`` ones became so again.
    ``matched_exact`` prompt tokens were found in the cache as they are needed, and
    ``matched_retrigger`` behind them at other positions only (in copy mode). Times are seconds:
    ``ttft`` from submission to the first token, ``itl`` the mean gap between later ones.

    ``attention`` holds, for each range the request named, the share of attention that the sampled
    tokens' queries gave it, over all layers and heads. ``likely`` is for each token, if asked for.
    """

    tokens: tuple[int, ...]
    finish: Literal["stop", "length"]
    cached: int
    computed: int
    refreshed: int
    attended: int
    ttft: float
    itl: float
    matched_exact: int = 0
    matched_retrigger: int = 0
    recovered: int = 0
    restored: int = 0
    attention: tuple[float, ...] = ()
    likely: tuple[Likely, ...] = ()


@dataclass(slots=True)
class Tally:
    """What one request has computed, in units of KV.

    Tokens ``[0, length)`` and the first ``groups`` groups of ops had been computed before.
    ``fresh`` prompt tokens were computed for the first time (or once more, for their logits) and
    ``recovered`` units again; ``exact`` prompt tokens were found in the cache, and ``retriggered``
    ones at other positions.
    """

    fresh: int = 0
    refreshed: int = 0
    recovered: int = 0
    restored: int = 0
    exact: int = 0
    retriggered: int = 0
    length: int = 0
    groups: int = 0

    def found(self, length: int, groups: int, displaced: int = 0) -> None:
        """The path up to there is in the cache; its ``displaced`` last tokens were elsewhere."""
        new = max(0, length - self.length)
        self.exact += max(0, new - displaced)
        self.retriggered += min(new, displaced)
        self.had(length, groups)

    def had(self, length: int, groups: int) -> None:
        """What is computed up to there from now on, it had before."""
        self.length, self.groups = max(self.length, length), max(self.groups, groups)

    def appended(self, start: int, stop: int, prompt: int) -> None:
        """Tokens ``[start, stop)`` are computed."""
        self.recovered += max(0, min(stop, self.length) - start)
        self.fresh += max(0, min(stop, prompt) - max(start, self.length))

    def applied(self, ops: Sequence[Op], refreshed: int, group: int) -> None:
        """That group of ops (from 1) has happened, and ``refreshed`` tokens are computed for it."""
        if group > self.groups:
            ranges = [r for op in ops if isinstance(op, Restore) for r in op.ranges]
            self.restored += sum(end - start for start, end in ranges)
        self.renewed(refreshed, group)

    def renewed(self, count: int, group: int) -> None:
        """``count`` tokens are computed again as that group of ops (from 1) made them."""
        if group <= self.groups:
            self.recovered += count
        else:
            self.refreshed += count


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counts since the engine started cold, in tokens and pages.

    ``cached`` and ``computed`` split the ``prompt`` tokens of finished requests; ``refreshed`` and
    ``recovered`` ones are computed besides. Pages were freed of what nobody reads (``dropped``), of
    position versions (``turned``) and of whole paths (``evicted``). ``preemptions`` count requests
    that had to wait again, ``relocated`` tokens moved to dense pages; ``gathered`` ones were
    copied there for decodes that read many short runs (on a GPU).
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
    matched_exact: int = 0
    matched_retrigger: int = 0
    recovered_tokens: int = 0
    restored_tokens: int = 0
    dropped_pages: int = 0
    turned_pages: int = 0
    preemptions: int = 0
    relocated: int = 0
    gathered: int = 0
