"""Trim: tool results older than a number of turns are deleted from the text, several at a time.

    old = {s : kind(s) = tool_result and age(s) >= keep};  edit iff |old| >= batch: remove old

Source: the "keep the last K tool results" trimming of common agent harnesses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from akv_rsi.policies.editor import Edit, age, editable
from akv_rsi.policies.tunables import Tunable
from akv_rsi.types import Snapshot


@dataclass(frozen=True, slots=True)
class Trim:
    """Removes old tool results once ``batch`` of them have gathered."""

    name: ClassVar[str] = "trim"
    tunables: ClassVar[tuple[Tunable, ...]] = (
        Tunable("keep", 1, 32, 6, integer=True, log=False),
        Tunable("batch", 2, 16, 4, integer=True, log=False),
    )
    keep: int = 6
    batch: int = 4

    def edit(self, snapshot: Snapshot) -> Edit | None:
        """See `Editor`."""
        results = [s for s in editable(snapshot) if s.kind == "tool_result"]
        old = tuple(s.id for s in results if age(s, snapshot) >= self.keep)
        return Edit(remove=old) if len(old) >= self.batch else None
