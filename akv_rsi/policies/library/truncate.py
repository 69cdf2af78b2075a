"""Truncate: when the text outgrows a limit, whole turns go, oldest first, down to a target.

    edit iff tokens > limit * reliable_span;  afterwards tokens <= target * reliable_span

Source: the sliding truncation of common agent harnesses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from akv_rsi.policies.editor import Edit, editable, total
from akv_rsi.policies.tunables import Tunable
from akv_rsi.types import Snapshot


@dataclass(frozen=True, slots=True)
class Truncate:
    """Removes the oldest turns. ``limit`` and ``target`` are shares of the reliable span."""

    name: ClassVar[str] = "truncate"
    tunables: ClassVar[tuple[Tunable, ...]] = (
        Tunable("limit", 0.3, 2.0, 1.0, integer=False, log=False),
        Tunable("target", 0.1, 1.0, 0.5, integer=False, log=False),
    )
    limit: float = 1.0
    target: float = 0.5

    def edit(self, snapshot: Snapshot) -> Edit | None:
        """See `Editor`. None as well when the turns that may go are too few to reach the target."""
        span, tokens = snapshot.reliable_span, total(snapshot.segments)
        surplus = tokens - min(self.target, self.limit) * span
        candidates = editable(snapshot)
        if tokens <= self.limit * span or total(candidates) < surplus:
            return None
        last, freed = candidates[0].turn, 0
        for segment in candidates:
            if freed >= surplus and segment.turn != last:
                break
            last, freed = segment.turn, freed + segment.tokens
        return Edit(remove=tuple(s.id for s in candidates if s.turn <= last))
