"""Units of KV and what each was computed from, one set entry each: the slow side of `closure`.

Imports nothing of akv_rsi. A unit is (token, epoch), the epoch being the number of groups of ops
before its KV was computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .book import Book, Op, groups

Unit = tuple[int, int]


class Units:
    """All units of a history over ``length`` tokens.

    ``sources[unit]`` are the units it was computed from; ``shown[k]`` what is visible after ``k``
    groups of ops and the tokens up to the next boundary.
    """

    def __init__(self, history: Sequence[Op], length: int) -> None:
        self.sources: dict[Unit, set[Unit]] = {}
        self.shown: list[set[Unit]] = []
        self._names: dict[int, Unit] = {}
        book, epoch = Book(), 0
        for boundary, ops in [*groups(history), (length, [])]:
            book.append(boundary - book.length)
            self._note(book, epoch)
            self.shown.append({self._names[book.version[i]] for i in book.shown()})
            if ops:
                epoch += 1
                book.apply(ops)
                self._note(book, epoch)

    def _note(self, book: Book, epoch: int) -> None:
        for token, version in enumerate(book.version):
            if version not in self._names:
                self._names[version] = (token, epoch)
        for token, version in enumerate(book.version):
            sources = {self._names[v] for _, v, _ in book.seen[token][1]}
            self.sources.setdefault(self._names[version], sources)

    def needed(self, read: Iterable[Unit], gone: set[Unit]) -> set[Unit]:
        """What must be computed again for ``read`` to be there: the definition, to the letter."""
        needed, waiting = set[Unit](), [unit for unit in read if unit in gone]
        while waiting:
            unit = waiting.pop()
            if unit not in needed:
                needed.add(unit)
                waiting += [source for source in self.sources[unit] if source in gone]
        return needed
