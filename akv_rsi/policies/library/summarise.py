"""Summarise: when the text outgrows a limit, the agent is asked to sum up all but the last turns.

    edit iff tokens > limit * reliable_span and the turns older than keep hold >= share of the text

Source: the context compaction of common agent harnesses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from akv_rsi.policies.editor import Edit, age, editable, total
from akv_rsi.policies.tunables import Tunable
from akv_rsi.types import Snapshot

# An edit that would replace less of the text than this cannot break even.
_SHARE = 0.3


@dataclass(frozen=True, slots=True)
class Summarise:
    """Sums up turns older than ``keep``. ``limit`` is a share of the reliable span."""

    name: ClassVar[str] = "summarise"
    tunables: ClassVar[tuple[Tunable, ...]] = (
        Tunable("limit", 0.3, 2.0, 1.0, integer=False, log=False),
        Tunable("keep", 1, 32, 6, integer=True, log=False),
    )
    limit: float = 1.0
    keep: int = 6

    def edit(self, snapshot: Snapshot) -> Edit | None:
        """See `Editor`."""
        tokens = total(snapshot.segments)
        old = [s for s in editable(snapshot) if age(s, snapshot) >= self.keep]
        if tokens <= self.limit * snapshot.reliable_span or total(old) < _SHARE * tokens:
            return None
        return Edit(summarise=tuple(s.id for s in old))
