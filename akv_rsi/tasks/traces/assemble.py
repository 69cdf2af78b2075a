"""From a reader's events to conversations, each as soon as it is complete."""

from __future__ import annotations

from collections.abc import Iterator

from akv_rsi.tasks.traces.draft import Draft, Options
from akv_rsi.tasks.traces.events import Began, Event
from akv_rsi.tasks.traces.trace import Trace


class Assembler:
    """Takes the events of one file; `feed` and `close` return the conversations they complete."""

    def __init__(self, path: str, format_name: str, options: Options | None = None) -> None:
        self._about = (path, format_name)
        self._options = options or Options()
        self._open: dict[str, Draft] = {}
        self._current: Draft | None = None

    def feed(self, event: Event) -> Iterator[Trace]:
        """Takes one event; yields what it completes."""
        if isinstance(event, Began):
            draft = self._open.get(event.id)
            if draft is None:
                if not event.beside:
                    yield from self.close()
                draft = Draft(Trace(event.id, *self._about), self._options)
                self._open[event.id] = draft
            self._current = draft
            return
        if self._current is None:
            self._current = Draft(Trace("", *self._about), self._options)
            self._open[""] = self._current
        self._current.take(event)

    def close(self) -> Iterator[Trace]:
        """Completes the conversations that are open."""
        drafts, self._open, self._current = self._open, {}, None
        for draft in drafts.values():
            yield draft.finish()
