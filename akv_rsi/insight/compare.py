"""Two policies side by side: their sources, and their conversations on one task."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from akv_rsi.insight.run import Run
from akv_rsi.insight.seen import Seen
from akv_rsi.policies.tunables import freeze
from akv_rsi.tasks.episode import TaskRef
from akv_rsi.types import Segment, Trajectory

Side = Literal["same", "old", "new", "place"]


def source_of(seen: Seen) -> str:
    """The source with its numbers filled in, as it ran; a sentence for what has no source."""
    if seen.spec.kind == "program":
        return freeze(seen.spec.source, seen.candidate.values)
    if seen.spec.kind == "editor":
        numbers = "".join(f"# {k} = {v}\n" for k, v in seen.spec.tunables)
        return f"# {seen.spec.name}: edits the text itself; built in, no program.\n{numbers}"
    return "# Hindsight: drops what no later step needs. Answered by the environment.\n"


def diff(old: str, new: str) -> list[tuple[Side, str]]:
    """The lines of a unified diff, each with what it is."""
    kinds: dict[str, Side] = {" ": "same", "-": "old", "+": "new", "@": "place"}
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=3))
    return [(kinds.get(line[:1], "same"), line) for line in lines[2:]]


@dataclass(frozen=True, slots=True)
class Pair:
    """A place in two conversations: what stood there in each, None past its end."""

    left: Segment | None
    right: Segment | None

    @property
    def same(self) -> bool:
        """Whether both say the same."""
        if self.left is None or self.right is None:
            return False
        return (self.left.kind, self.left.text) == (self.right.kind, self.right.text)


def align(left: Trajectory, right: Trajectory) -> list[Pair]:
    """Segment beside segment, in order."""
    count = max(len(left.segments), len(right.segments))

    def at(trajectory: Trajectory, number: int) -> Segment | None:
        return trajectory.segments[number] if number < len(trajectory.segments) else None

    return [Pair(at(left, i), at(right, i)) for i in range(count)]


def divergence(pairs: list[Pair]) -> int | None:
    """The first place where they differ; None if they never do."""
    return next((i for i, pair in enumerate(pairs) if not pair.same), None)


Kind = Literal["win", "loss", "tie"]
_KINDS: Mapping[Kind, Callable[[float, float], bool]] = {
    "win": lambda ours, full: ours > full,
    "loss": lambda ours, full: ours < full,
    "tie": lambda ours, full: ours == full > 0,
}


@dataclass(frozen=True, slots=True)
class Told:
    """A task that tells something of a policy: ``kind`` says what, ``words`` why."""

    kind: Kind
    task: TaskRef
    words: str


def instructive(run: Run, seen: Seen) -> list[Told]:
    """A win, a loss and a tie of a policy against keeping everything, of those recorded.

    Of each the one that cost least; what does not occur is left out.
    """
    split = next((s for s in run.recorded(seen) if s in run.recorded(run.full)), None)
    if split is None:
        return []
    ours, full = seen.episodes[split], run.full.episodes[split]
    found = []
    for kind, wanted in _KINDS.items():
        tasks = [t for t, e in ours.items() if wanted(e.success, full[t].success)]
        if tasks:
            task = min(tasks, key=lambda t: (ours[t].cost / full[t].cost, t.suite, t.seed))
            found.append(Told(kind, task, _why(kind, ours[task].cost / full[task].cost)))
    return found


def _why(kind: Kind, ratio: float) -> str:
    cost = f"at {ratio:.2f} of its cost"
    return {
        "win": f"better than keeping everything, {cost}",
        "loss": f"worse than keeping everything, {cost}",
        "tie": f"solved as by keeping everything, {cost}",
    }[kind]
