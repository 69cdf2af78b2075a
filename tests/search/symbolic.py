"""An agent for the built-in suites that is no model: it reads what it sees, without error.

It looks the asked-for value up in the visible tokens of its prompt, and fails where a small model
does: when the value is hidden, or when its own position is past the reliable span. It is a hundred
times faster, so whole searches can be compared over many seeds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256

from akv_rsi.engine.request import Completion, Request
from akv_rsi.tasks.agent import WordFormat
from akv_rsi.tasks.bench import Agent
from akv_rsi.tasks.environment import Message
from akv_rsi.tasks.reference.model import load_reference
from akv_rsi.visibility import Visibility

MARGIN = 64  # positions past the reliable span at which it still reads well
VIEWS = frozenset({"open", "visit", "query"})
VALUED = frozenset("note edit fill put submit checkout_order disconnect".split())
REPAIRS = frozenset({"fix", "retry", "patch"})


@dataclass
class SymbolicEngine:
    """Has what a cohort needs of an engine; counts like a private cache that is always cold."""

    chat: WordFormat
    waiting: list[Request] = field(default_factory=list)

    def submit(self, request: Request) -> int:
        self.waiting.append(request)
        return len(self.waiting) - 1

    def step(self):
        batch, self.waiting = self.waiting, []
        return [(i, self.answer(request)) for i, request in enumerate(batch)]

    def reset(self) -> None:
        self.waiting = []

    def answer(self, request: Request) -> Completion:
        state = Visibility.replay(len(request.tokens), request.history)
        seen = [t for start, end in state.visible_ranges for t in request.tokens[start:end]]
        words = [self.chat._words[token] for token in seen]
        action = act(words)
        beyond = state.next_position - self.chat.reliable_span - MARGIN
        if beyond > 0 and len(action.split()) > 1 and unlucky(request.tokens, beyond):
            action = f"{action.rpartition(' ')[0]} amber"
        tokens = self.chat.encode(Message("assistant", action))[1:][: request.max_new_tokens]
        count = len(request.tokens)
        return Completion(tuple(tokens), "stop", 0, count, 0, state.attended, 0.0, 0.0)


def unlucky(tokens, beyond):
    """The further beyond its span, the likelier a slip; the same prompt always slips or never."""
    chance = min(1.0, beyond / 600)
    return int(sha256(repr(tokens[-40:]).encode()).hexdigest()[:6], 16) / 0xFFFFFF < chance


def act(words):
    """What the last instruction asks for, with what is visible."""
    if "recap" in words[-4:]:
        return "note recap"
    last = len(words) - 1 - words[::-1].index("next")
    asked = words[last + 2 : words.index("<end>", last)]
    verb, key = asked[0], asked[-1]
    if verb in REPAIRS:
        return f"{verb} {latest(words[:last], 'needs', verb)}"
    if verb in VALUED:
        return f"{verb} {key} {latest(words[:last], None, key)}"
    if verb in VIEWS and len(asked) == 2 and not is_place(key):
        return f"{verb} {latest(words[:last], None, key, place=True)}"
    return " ".join(asked)


STOPS = frozenset({".", ",", ":", "<end>", "next"})


def is_place(word):
    return word.endswith((".py", "_table")) or word.startswith("/")


def latest(words, before, key, place=False):
    """The word behind the last ``key`` that states a value, or a place."""
    for i in range(len(words) - 2, -1, -1):
        stated = words[i] == key and words[i + 1] not in STOPS and is_place(words[i + 1]) == place
        if stated and (before is None or words[i - 1] == before):
            return words[i + 1]
    return "amber"


def symbolic_agent() -> Agent:
    chat = load_reference()[1]
    return Agent(SymbolicEngine(chat), chat)
