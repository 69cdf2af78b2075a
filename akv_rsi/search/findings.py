"""Evidence on one policy as data: what a critique found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from akv_rsi.search.traits import Sample, Traits, add_up
from akv_rsi.tasks.episode import TaskRef
from akv_rsi.types import Trajectory

if TYPE_CHECKING:
    from akv_rsi.search.blame import Cause

DEAREST = 8  # spans kept in vain that are worth telling


@dataclass(frozen=True, slots=True)
class Recorded:
    """An episode of the policy that is criticised."""

    task: TaskRef
    trajectory: Trajectory
    success: bool


@dataclass(frozen=True, slots=True)
class Span:
    """A segment that evidence speaks of, as it was at that call; its text is cut."""

    id: int
    text: str
    traits: Traits


@dataclass(frozen=True, slots=True)
class Finding:
    """One failed task: where it first went wrong, and why; see `Blame`."""

    task: TaskRef
    turn: int
    said: str
    right: str
    cause: Cause
    culprits: tuple[Span, ...] = ()
    others: tuple[Span, ...] = ()
    innocent: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Waste:
    """A span that calls went on reading although none of them needed it: ``reads`` tokens."""

    task: TaskRef
    span: Span
    reads: int


@dataclass(frozen=True, slots=True)
class Effort:
    """What forks took: LLM calls, tokens of their prompts, and of those what was ``computed``."""

    forks: int = 0
    prompt: int = 0
    computed: int = 0
    output: int = 0

    def __add__(self, other: Effort) -> Effort:
        return Effort(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Effort)))

    @property
    def share(self) -> float:
        """Computed tokens, as a share of what as many fresh runs would have computed."""
        return self.computed / max(self.prompt, 1)


@dataclass(frozen=True, slots=True)
class Critique:
    """The evidence on one policy. ``skipped`` tells which episodes gave none, and why."""

    findings: tuple[Finding, ...] = ()
    waste: tuple[Waste, ...] = ()
    samples: tuple[Sample, ...] = ()
    effort: Effort = Effort()
    skipped: tuple[str, ...] = ()


def merged(parts: Sequence[Critique]) -> Critique:
    """The evidence of several jobs as one, by task."""
    findings = [finding for part in parts for finding in part.findings]
    return Critique(
        tuple(sorted(findings, key=lambda f: (f.task.seed, f.task.suite))),
        dearest(waste for part in parts for waste in part.waste),
        add_up(sample for part in parts for sample in part.samples),
        sum((part.effort for part in parts), Effort()),
        tuple(line for part in parts for line in part.skipped),
    )


def dearest(waste: Iterable[Waste]) -> tuple[Waste, ...]:
    """Those that cost the most reading."""

    def order(one: Waste) -> tuple[int, str, int]:
        return (-one.reads, f"{one.task.suite}/{one.task.seed}", one.span.id)

    return tuple(sorted(waste, key=order)[:DEAREST])
