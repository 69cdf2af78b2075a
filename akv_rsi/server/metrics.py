"""What Prometheus can ask a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from akv_rsi.engine.request import Completion, EngineStats

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
# Counters of the engine, by what they count.
_ENGINE = {
    "requests": "requests finished",
    "prompt_tokens": "prompt tokens of finished requests",
    "cached_tokens": "prompt tokens that were not computed for the first time",
    "computed_tokens": "prompt tokens that were",
    "refreshed_tokens": "tokens recomputed by a Refresh",
    "restored_tokens": "tokens made visible again by a Restore",
    "recovered_tokens": "units of KV that had been lost and were computed again",
    "matched_exact": "prompt tokens found in the cache as they are needed",
    "matched_retrigger": "prompt tokens found at other positions only (copy mode)",
    "output_tokens": "tokens sampled",
    "passes": "forward passes",
    "evicted_pages": "pages taken from the least recently used paths",
    "dropped_pages": "pages taken from what nobody reads any more",
    "relocated": "tokens moved out of mostly dead pages",
    "gathered": "tokens copied to dense pages for decodes that read many short runs",
    "preemptions": "requests that had to wait again for room",
}


class Metrics:
    """The counters of one server; ``page`` is what ``/metrics`` answers."""

    def __init__(
        self,
        stats: Callable[[], EngineStats],
        gauges: dict[str, tuple[str, Callable[[], float]]],
    ) -> None:
        """``gauges`` maps a name to what it is and where to read it."""
        self._registry = CollectorRegistry()
        self._registry.register(_Reads(stats, gauges))
        self._answers = Counter(
            "akv_answers", "answers by status", ["status"], registry=self._registry
        )
        self._ops = Counter("akv_ops", "cache ops of requests", ["op"], registry=self._registry)
        self._skipped = Counter(
            "akv_drop_skipped_tokens",
            "prompt tokens that were not read any more",
            registry=self._registry,
        )
        self._moved = Counter(
            "akv_repos_tokens",
            "prompt tokens read at another position than written",
            registry=self._registry,
        )
        self._policy = Counter(
            "akv_policy_failures", "calls the policy failed before", registry=self._registry
        )
        self._first = Histogram(
            "akv_ttft_seconds",
            "from the request to its first token",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._between = Histogram(
            "akv_inter_token_seconds",
            "mean time between later tokens",
            buckets=_SECONDS,
            registry=self._registry,
        )

    def answered(self, status: int) -> None:
        """A request was answered."""
        self._answers.labels(str(status)).inc()

    def asked(self, ops: Iterator[str]) -> None:
        """A request brought these ops, or the policy did."""
        for op in ops:
            self._ops.labels(op).inc()

    def failed_policy(self) -> None:
        """The policy took no part in a call."""
        self._policy.inc()

    def completed(self, completion: Completion, details: dict[str, Any]) -> None:
        """A request was completed, with these details of its usage."""
        self._skipped.inc(details["drop_skipped_tokens"])
        self._moved.inc(details["repos_tokens"])
        self._first.observe(completion.ttft)
        if len(completion.tokens) > 1:
            self._between.observe(completion.itl)

    def page(self) -> bytes:
        """The metrics as text."""
        return generate_latest(self._registry)


class _Reads(Collector):
    """The engine's counts and the server's gauges, read when asked."""

    def __init__(
        self,
        stats: Callable[[], EngineStats],
        gauges: dict[str, tuple[str, Callable[[], float]]],
    ) -> None:
        self._stats = stats
        self._gauges = gauges

    def collect(self) -> Iterator[Metric]:
        stats = self._stats()
        for name, about in _ENGINE.items():
            yield CounterMetricFamily(f"akv_engine_{name}", about, getattr(stats, name))
        yield GaugeMetricFamily("akv_engine_pages_free", "pages nobody holds", stats.pages_free)
        for name, (about, read) in self._gauges.items():
            yield GaugeMetricFamily(f"akv_{name}", about, read())
