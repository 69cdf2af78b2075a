"""Decision tree: nothing while the context is small; then what the tools marked; then a summary.

    attended <= limit * reliable_span:                   plain prefix matching
    {s : ephemeral(s), age(s) >= keep} not empty:        dropped = that, repos
    else: `summarise` all turns but the last `recent`, and remove what had been dropped

Source: threshold, annotations, summary: the decision tree of AKV-SGLang (github.com/thu-nics/AKV).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from akv_rsi.policies.editor import Edit, age, attended, editable, visible, with_dropped
from akv_rsi.policies.library.summarise import Summarise
from akv_rsi.policies.tunables import Tunable
from akv_rsi.types import Drop, Op, Repos, Snapshot


@dataclass(frozen=True, slots=True)
class DecisionTree:
    """Drops and repositions, or edits the text. ``limit`` is a share of the reliable span."""

    name: ClassVar[str] = "decision_tree"
    limit: float = 1.0
    keep: int = 1
    recent: int = 6
    tunables: ClassVar[tuple[Tunable, ...]] = (
        Tunable("limit", 0.3, 2.0, 1.0, integer=False, log=False),
        Tunable("keep", 1, 16, 1, integer=True, log=False),
        Tunable("recent", 1, 32, 6, integer=True, log=False),
    )

    def decide(self, snapshot: Snapshot) -> Edit | tuple[Op, ...]:
        """See `library.decider`."""
        if attended(snapshot) <= self.limit * snapshot.reliable_span:
            return ()
        marked = [s for s in editable(snapshot) if s.ephemeral and age(s, snapshot) >= self.keep]
        if ranges := visible(marked, snapshot):
            return (Drop(snapshot.boundary, tuple(ranges)), Repos(snapshot.boundary))
        edit = Summarise(self.limit, self.recent).edit(snapshot)
        return () if edit is None else with_dropped(edit, snapshot)
