"""What can be done to a transcript before it is asked: cache operations, and edits of the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from akv_rsi.tasks.agent import ChatFormat
from akv_rsi.tasks.environment import Message
from akv_rsi.tasks.recall.transcript import Recall
from akv_rsi.types import Drop, Op, OpHistory, Range, Refresh, Repos
from akv_rsi.visibility import Visibility

KEPT_TURNS = 2  # that a summary leaves in place
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Prompt:
    """What questions follow: tokens and the ops on them. ``prefilled`` tokens were computed for it.

    The rest was cached already, since the transcript as it was had been computed.
    """

    tokens: tuple[int, ...]
    history: OpHistory
    prefilled: int

    @property
    def attended(self) -> int:
        """Tokens that a question sees."""
        return Visibility.replay(len(self.tokens), self.history).attended


# Writes the summary of the tokens it is given.
Summarise = Callable[[Sequence[int]], Message]
Variant = Callable[[Recall, ChatFormat, Summarise], Prompt]


def full(recall: Recall, chat: ChatFormat, summarise: Summarise) -> Prompt:
    """Everything kept."""
    return Prompt(recall.tokens, OpHistory(), 0)


def truncate(recall: Recall, chat: ChatFormat, summarise: Summarise) -> Prompt:
    """The oldest records are deleted from the text, until half of it is left."""
    half = len(recall.tokens) // 2
    first = next(t for t in recall.turns if len(recall.tokens) - recall.spans[t][0] <= half)
    return edited(recall, [0, *range(first, len(recall.messages))])


def trim(recall: Recall, chat: ChatFormat, summarise: Summarise) -> Prompt:
    """The tools' results are deleted from the text."""
    return edited(recall, [i for i in range(len(recall.messages)) if i not in recall.results])


def summary(recall: Recall, chat: ChatFormat, summarise: Summarise) -> Prompt:
    """The model sums up all but the last records, and the summary stands for them."""
    first = recall.turns[-KEPT_TURNS] if len(recall.turns) > KEPT_TURNS else recall.turns[-1]
    start, rest = recall.spans[0][1], recall.spans[first][0]
    said = chat.encode(summarise(recall.tokens[:rest]))
    tokens = (*recall.tokens[:start], *said, *recall.tokens[rest:])
    return Prompt(tokens, OpHistory(), len(tokens) - start)


def dropping(
    refresh: Callable[[Recall, ChatFormat], Sequence[Range]] | None = None, repos: bool = False
) -> Variant:
    """The tools' results are dropped; gaps close if ``repos``, and ``refresh`` is recomputed."""

    def variant(recall: Recall, chat: ChatFormat, summarise: Summarise) -> Prompt:
        end = len(recall.tokens)
        ops: list[Op] = [Drop(end, tuple(recall.spans[i] for i in recall.results))]
        if repos:
            ops.append(Repos(end))
        ranges = tuple(refresh(recall, chat)) if refresh else ()
        if ranges:
            ops.append(Refresh(end, ranges))
        return Prompt(recall.tokens, OpHistory(tuple(ops)), sum(b - a for a, b in ranges))

    return variant


def notes(recall: Recall, chat: ChatFormat) -> list[Range]:
    """The notes about what was dropped, whole: by turn."""
    return [recall.spans[i] for i in recall.notes]


def values(recall: Recall, chat: ChatFormat) -> list[Range]:
    """Of the notes only the numbers."""
    return _words(recall, chat, lambda word, result: word.isdigit())


def overlap(recall: Recall, chat: ChatFormat) -> list[Range]:
    """Of the notes only the words that the dropped result has too."""
    return _words(recall, chat, lambda word, result: len(word) > 3 and word in result)


def behind(recall: Recall, chat: ChatFormat) -> list[Range]:
    """All that survives behind the first dropped result: with Repos this is forgetting."""
    gone = set(recall.results)
    return [s for i, s in enumerate(recall.spans) if i > recall.results[0] and i not in gone]


VARIANTS: dict[str, Variant] = {
    "full": full,
    "truncate": truncate,
    "trim": trim,
    "summarise": summary,
    "drop": dropping(),
    "drop+repos": dropping(repos=True),
    "drop+refresh": dropping(notes),
    "drop+refresh+repos": dropping(notes, repos=True),
}
# Which survivors need a refresh, and how few of their tokens suffice.
STUDY: dict[str, Variant] = {
    "refresh words of the result": dropping(overlap),
    "refresh numbers": dropping(values),
    "refresh all behind": dropping(behind),
}


def edited(recall: Recall, keep: Sequence[int]) -> Prompt:
    """The text of the messages ``keep``; what follows the first gap is prefilled again."""
    tokens = [t for i in keep for t in recall.tokens[slice(*recall.spans[i])]]
    gap = next((i for i, number in enumerate(keep) if number != i), len(keep))
    start = recall.spans[keep[gap - 1]][1]
    return Prompt(tuple(tokens), OpHistory(), len(tokens) - start)


def _words(
    recall: Recall, chat: ChatFormat, chosen: Callable[[str, set[str]], bool]
) -> list[Range]:
    """The tokens of the notes' words that ``chosen`` picks, given the words of their result."""
    ranges = list[Range]()
    for result, note in zip(recall.results, recall.notes, strict=True):
        known = set(_WORD.findall(recall.messages[result].text))
        start, end = recall.spans[note]
        pieces = [chat.decode([token]) for token in recall.tokens[start:end]]
        for match in _WORD.finditer("".join(pieces)):
            if chosen(match.group(), known):
                ranges.append(_covering(pieces, match.start(), match.end(), start))
    return joined(ranges)


def _covering(pieces: Sequence[str], start: int, end: int, first: int) -> Range:
    """The tokens, from ``first`` on, whose ``pieces`` reach into the characters [start, end)."""
    at, inside = 0, list[int]()
    for number, piece in enumerate(pieces):
        if at < end and start < at + len(piece):
            inside.append(first + number)
        at += len(piece)
    return inside[0], inside[-1] + 1


def joined(ranges: Sequence[Range]) -> list[Range]:
    """Ascending ranges, those that touch or overlap made one."""
    out: list[Range] = []
    for start, end in ranges:
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out
