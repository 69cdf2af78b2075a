"""A search is a deterministic program over a few effects; the journal performs each effect once.

A resumed run starts the same program again. What the store holds is recalled in order, and from
where it ends the effects are performed and recorded. So a resumed run cannot differ from an
undisturbed one, and there is no other state to save.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from akv_rsi.errors import RunCorrupt
from akv_rsi.search.store import Event, Store


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an effect came to: its ``body``, and bulk to keep beside it.

    ``seconds`` says how long it took, where that is not how long the effect itself did.
    """

    body: Any
    attachment: bytes = b""
    seconds: float | None = None


class Journal:
    """Recalls the recorded events of ``store`` one by one, then records new ones."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._recorded = list(store.events())
        self._at = 0
        self._began = time.monotonic()

    @property
    def replaying(self) -> bool:
        """Whether the next effect is recalled."""
        return self._at < len(self._recorded)

    @property
    def upcoming(self) -> tuple[str, str] | None:
        """Kind and key of the event that is recalled next; None when the record ends here."""
        if not self.replaying:
            return None
        event = self._recorded[self._at]
        return event.kind, event.key

    @property
    def seconds(self) -> float:
        """How long the run has worked: this session, and what its recalled events took."""
        return time.monotonic() - self._began + sum(event.seconds for event in self._recorded)

    def perform(self, kind: str, key: str, effect: Callable[[], Outcome]) -> Event:
        """The event of this effect: recalled, or performed now and made durable.

        `RunCorrupt` when the record has another effect in this place: then the run was made by
        other code or other inputs, and continuing it would mix two searches.
        """
        if self.replaying:
            event, self._at = self._recorded[self._at], self._at + 1
            if (event.kind, event.key) != (kind, key):
                raise RunCorrupt(
                    f"{self.store.path}: event {event.seq} is {event.kind} {event.key}, but this "
                    f"version would do {kind} {key}; start a new run"
                )
            return event
        began = time.monotonic()
        outcome = effect()
        seconds = outcome.seconds
        if seconds is None:
            seconds = time.monotonic() - began
        return self.store.append(kind, key, outcome.body, outcome.attachment, seconds)
