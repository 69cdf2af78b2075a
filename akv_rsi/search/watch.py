"""Who wants to see a search while it runs."""

from __future__ import annotations

from typing import Protocol


class Watcher(Protocol):
    """Told what happens; it changes nothing."""

    def begin(self, phase: str, episodes: int) -> None:
        """A phase begins that takes about so many ``episodes``."""
        ...

    def advance(self, episodes: int) -> None:
        """More episodes are done, or were recalled from the record."""
        ...

    def say(self, line: str) -> None:
        """Something worth a line."""
        ...


class Silence:
    """Watches without a word."""

    def begin(self, phase: str, episodes: int) -> None:
        """Nothing."""

    def advance(self, episodes: int) -> None:
        """Nothing."""

    def say(self, line: str) -> None:
        """Nothing."""
