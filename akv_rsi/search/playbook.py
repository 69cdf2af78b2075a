"""Lessons: what was learned from failures, with what following them has brought since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PRIOR = 0.05  # the gain that a lesson is trusted with before it was followed
DECAY = 0.8  # what is left of a lesson's worth after each time that it did not help
FORGOTTEN = 0.005
LONGEST = 40  # lessons kept


@dataclass(slots=True)
class Lesson:
    """A sentence, the candidate it was ``learned`` from, and its effect.

    It was ``used`` so many times; ``gain`` is what the candidates made with it were better than
    their parents by, in all. ``worth`` is what it is expected to bring next.
    """

    text: str
    learned: str
    used: int = 0
    gain: float = 0.0
    worth: float = PRIOR

    @property
    def effect(self) -> float:
        """The mean gain of those who followed it."""
        return self.gain / self.used if self.used else 0.0


class Playbook:
    """Lessons by their text. One that does not help decays, and is forgotten in the end."""

    def __init__(self) -> None:
        self._lessons: dict[str, Lesson] = {}
        self._foreign: set[str] = set()

    def inherit(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Takes over the `state` of another run, whose lessons are trusted by nobody."""
        for lesson in (Lesson(**row) for row in rows):
            self._lessons[lesson.text] = lesson
            self._foreign.add(lesson.text)

    def is_own(self, text: str) -> bool:
        """Whether a lesson was learned in this run, from our own parts."""
        return text not in self._foreign

    def add(self, text: str, learned: str) -> None:
        """A new lesson; one that is known already keeps what it has."""
        if text:
            self._lessons.setdefault(text, Lesson(text, learned))
        while len(self._lessons) > LONGEST:
            del self._lessons[self.best(LONGEST + 1)[-1].text]

    def best(self, count: int) -> list[Lesson]:
        """The lessons worth most."""
        ranked = sorted(self._lessons.values(), key=lambda one: (-one.worth, one.text))
        return ranked[:count]

    def tell(self, text: str, gain: float) -> None:
        """A candidate that followed the lesson was better than its parent by ``gain``, or worse."""
        if (lesson := self._lessons.get(text)) is None:
            return
        lesson.used += 1
        lesson.gain += gain
        if gain > 0:
            lesson.worth = (lesson.worth + gain) / 2
            return
        lesson.worth *= DECAY
        if lesson.worth < FORGOTTEN:
            del self._lessons[text]

    def state(self) -> list[dict[str, Any]]:
        """All lessons as plain data, the best first."""
        names = ("text", "learned", "used", "gain", "worth")
        return [{n: getattr(lesson, n) for n in names} for lesson in self.best(LONGEST)]
