"""Who may prepare a request: one at a time, and nobody for long while others wait.

Tokenizer, template and policy are not shared by threads, and Python would run them one after the
other anyway. But a conversation of thousands of messages that was never seen takes seconds, so it
takes them in steps, and lets those who wait go first between them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

# Steps in one go: a request that goes on from a known conversation takes fewer.
STEPS = 16


class Turns:
    """A lock that is handed on in the order in which it was asked for."""

    def __init__(self, steps: int = STEPS) -> None:
        self._steps = steps
        self._guard = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._holder: int | None = None
        self._done = 0

    @property
    def waiting(self) -> int:
        """How many threads wait for their turn."""
        return len(self._waiting)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """The turn, until its end or a `step` hands it on; there it is waited for again."""
        self._take()
        try:
            yield
        finally:
            self._hand_on()

    def step(self) -> None:
        """Between two steps: after so many of them the others go first. What is shared is whole.

        No-op for a thread that has not taken its turn.
        """
        if self._holder != threading.get_ident():
            return
        self._done += 1
        if self._done >= self._steps and self._waiting:
            self._hand_on()
            self._take()

    def _take(self) -> None:
        with self._guard:
            if self._holder is None:
                mine = None
                self._holder = threading.get_ident()
            else:
                mine = threading.Event()
                self._waiting.append(mine)
        if mine is not None:
            mine.wait()
            self._holder = threading.get_ident()
        self._done = 0

    def _hand_on(self) -> None:
        with self._guard:
            if self._waiting:
                # Nobody else can take it meanwhile: it stays held until the next one wakes up.
                self._waiting.popleft().set()
            else:
                self._holder = None
