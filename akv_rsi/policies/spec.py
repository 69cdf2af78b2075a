"""What is needed to open a policy in any process: plain data, hashable, picklable."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Literal

TunableValue = int | float


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """A policy as data.

    ``program``: a DSL ``source`` with its ``tunables`` fixed; untrusted ones run in the sandbox.
    ``editor``: one of the library that edits the text (a tree: or drops), by ``name``. ``oracle``:
    hindsight, answered by the environment itself. ``agent``: the agent decides, by calls of a tool.
    """

    name: str
    kind: Literal["program", "editor", "oracle", "agent"] = "program"
    source: str = ""
    tunables: tuple[tuple[str, TunableValue], ...] = ()
    trusted: bool = False

    @property
    def id(self) -> str:
        """Twelve hex digits that name what it does: kind, source (or name) and tunables."""
        content = [self.kind, self.source or self.name, sorted(self.tunables)]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]
