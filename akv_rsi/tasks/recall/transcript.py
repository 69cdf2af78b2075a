"""Transcripts that hold facts: an agent opens records, and notes what it reads, or not.

Each record tells two codes between other text. The agent restates both in a note, but in every
third record only the first: the second code is then in the tool's output alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from akv_rsi.tasks.agent import ChatFormat
from akv_rsi.tasks.environment import Message
from akv_rsi.types import Range

_COLOURS = "amber azure black bronze coral crimson gold green grey ivory jade lilac".split()
_THINGS = "anchor basket bridge candle engine garden hammer island ladder market mirror".split()
_THINGS += "needle office palace pocket rocket saddle temple ticket tunnel valley window".split()
_FILLER = (
    "The room was quiet and the lamp was on.",
    "Nobody had signed the sheet that morning.",
    "A truck was seen near the fence at noon.",
    "The paint on the door had begun to peel.",
    "Two chairs were moved to the other wall.",
    "The report was typed again and filed.",
)
UNNOTED_EVERY = 3


@dataclass(frozen=True, slots=True)
class Fact:
    """A code that record ``record`` tells of ``name``; ``noted`` if the agent restated it."""

    name: str
    value: str
    record: int
    noted: bool

    @property
    def question(self) -> Message:
        """What asks for it."""
        return Message("user", f"What is the code of the {self.name}? Answer with the number only.")

    @property
    def lead(self) -> str:
        """How an answer begins that is no bare number."""
        return f"The code of the {self.name} is"


@dataclass(frozen=True, slots=True)
class Recall:
    """A transcript in tokens: message ``i`` lies in ``spans[i]``.

    ``results`` and ``notes`` are the numbers of the tools' messages and of the notes about them,
    record by record; ``turns`` the first message of each record.
    """

    messages: tuple[Message, ...]
    tokens: tuple[int, ...]
    spans: tuple[Range, ...]
    facts: tuple[Fact, ...]
    turns: tuple[int, ...]
    results: tuple[int, ...]
    notes: tuple[int, ...]


def recall(seed: int, length: int, chat: ChatFormat) -> Recall:
    """As many records as fit in about ``length`` tokens; the same seed gives the same text."""
    rng = Random(f"recall/{seed}/{length}")
    names = [f"{colour} {thing}" for colour in _COLOURS for thing in _THINGS]
    rng.shuffle(names)
    messages, facts = [Message("system", "You read records and answer questions.")], list[Fact]()
    size, turns = len(chat.encode(messages[0])), list[int]()
    while len(names) > 1:
        record = len(turns)
        told = [Fact(names.pop(), str(rng.randint(1000, 9999)), record, True) for _ in range(2)]
        if record % UNNOTED_EVERY == UNNOTED_EVERY - 1:
            told[1] = Fact(told[1].name, told[1].value, record, False)
        turn = _turn(record, told, rng)
        size += sum(len(chat.encode(message)) for message in turn)
        if turns and size > length:
            break
        turns.append(len(messages))
        messages += turn
        facts += told
    spans, tokens = list[Range](), list[int]()
    for message in messages:
        encoded = chat.encode(message)
        spans.append((len(tokens), len(tokens) + len(encoded)))
        tokens += encoded
    results, notes = tuple(t + 2 for t in turns), tuple(t + 3 for t in turns)
    parts = (tuple(messages), tuple(tokens), tuple(spans), tuple(facts))
    return Recall(*parts, tuple(turns), results, notes)


def _turn(record: int, told: list[Fact], rng: Random) -> list[Message]:
    first, second = (f"The code of the {fact.name} is {fact.value}." for fact in told)
    filler = rng.sample(_FILLER, 3)
    text = f"Record {record + 1}. {filler[0]} {first} {filler[1]} {second} {filler[2]}"
    noted = " ".join(f"The {f.name} code is {f.value}." for f in told if f.noted)
    return [
        Message("user", f"Open record {record + 1}."),
        Message("tool_call", f"open record {record + 1}", "open"),
        Message("tool_result", text, "open", str(record + 1)),
        Message("assistant", f"Noted. {noted}"),
    ]
