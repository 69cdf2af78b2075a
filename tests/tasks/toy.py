"""A small world for the evaluator's tests: a suite, a format and an agent that is no model.

The toy agent reads the visible tokens of its prompt and does what the last message asks for; what
it cannot see it gets wrong. So dropping what is needed costs accuracy, as with a real one.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass, field

from akv_rsi.engine.request import Completion, Request
from akv_rsi.errors import AkvError, ContextLimit, EngineError
from akv_rsi.tasks.agent import WordFormat, vocabulary
from akv_rsi.tasks.bench import Agent
from akv_rsi.tasks.environment import Environment, Message, Observation
from akv_rsi.visibility import Visibility

KEYS = ["red", "blue", "green", "black", "white", "grey"]
VALUES = [f"v{i}" for i in range(40)]
WORDS = [
    *KEYS,
    *VALUES,
    *["you", "act", "next", "look", "put", "recap", "wrong", "ok", "poll", "note", "is", "noise"],
    *[".", ":"],
]
SPAN = 120
LONGEST = 1000


class ToyEnvironment:
    """Look up some keys, poll, then put each looked-up value: ``turns`` steps in all."""

    def __init__(self, seed: int, broken: str = "") -> None:
        rng = random.Random(seed)
        self._broken = broken
        keys = rng.sample(KEYS, 3)
        values = {key: rng.choice(VALUES) for key in keys}
        polls = rng.randint(1, 12)
        self._steps = [("look", key, values[key]) for key in keys]
        self._steps += [("poll", "noise", "noise")] * polls
        self._steps += [("put", key, values[key]) for key in keys]
        self._at = self._misses = 0
        self._wrong = False

    def reset(self) -> Observation:
        if self._broken == "reset":
            raise RuntimeError("no such world")
        opening = (Message("system", "you act"), Message("user", f"act . next : {self._asked()}"))
        return Observation(opening)

    def step(self, action: str) -> Observation:
        if self._broken == "step" and self._at == 2:
            raise RuntimeError("the world ended")
        kind, key, value = self._steps[self._at]
        self._misses += action != self.expert()
        self._wrong |= kind == "put" and action != self.expert()
        self._at += 1
        done = self._at == len(self._steps) or self._misses > 3
        text = (
            f"{key} is {value}"
            if kind == "look"
            else "noise noise noise"
            if kind == "poll"
            else "ok"
        )
        if not done:
            text += f" . next : {self._asked()}"
        return Observation((Message("tool_result", text, tool=kind, call=key),), done)

    def verify(self) -> bool:
        return self._at == len(self._steps) and not self._wrong

    def needed(self) -> frozenset[int]:
        """Step ``i`` has its action in message ``2 i + 2`` and its result in the next."""
        waiting = {key for kind, key, _ in self._steps[self._at :] if kind == "put"}
        looked = enumerate(self._steps[: self._at])
        return frozenset(
            2 * i + 3 for i, (kind, key, _) in looked if kind == "look" and key in waiting
        )

    def expert(self) -> str:
        kind, key, value = self._steps[self._at]
        return f"put {key} {value}" if kind == "put" else f"{kind} {key}"

    def _asked(self) -> str:
        kind, key, _ = self._steps[self._at]
        return f"{kind} {key}"


class PlainEnvironment:
    """The same without hindsight and expert: only what the protocol demands."""

    def __init__(self, seed: int) -> None:
        self._inner = ToyEnvironment(seed)

    def reset(self) -> Observation:
        return self._inner.reset()

    def step(self, action: str) -> Observation:
        return self._inner.step(action)

    def verify(self) -> bool:
        return self._inner.verify()


@dataclass(frozen=True)
class ToySuite:
    name: str

    def environment(self, seed: int) -> Environment:
        if self.name == "plain":
            return PlainEnvironment(seed)
        return ToyEnvironment(seed, self.name if seed % 2 else "")


def toy_suite(name: str) -> ToySuite:
    """``toy``; ``plain``; ``reset`` and ``step`` break there on odd seeds."""
    return ToySuite(name)


def own_suite() -> ToySuite:
    """What ``--suite toy:own_suite`` names."""
    return ToySuite("toy")


def plain_suite() -> ToySuite:
    """The same without hindsight and expert."""
    return ToySuite("plain")


def toy_format() -> WordFormat:
    return WordFormat(vocabulary(WORDS), reliable_span=SPAN)


@dataclass
class ToyEngine:
    """Answers like a model that can look things up in what it sees; counts like a private cache."""

    chat: WordFormat = field(default_factory=toy_format)
    batches: list[list[Request]] = field(default_factory=list)
    resets: int = 0
    waiting: list[Request] = field(default_factory=list)

    def submit(self, request: Request) -> int:
        if len(request.tokens) > LONGEST:
            raise ContextLimit("too long")
        self.waiting.append(request)
        return len(self.waiting) - 1

    def step(self) -> list[tuple[int, Completion | AkvError]]:
        """All that waits, last first: the order of answers must not matter."""
        batch, self.waiting = self.waiting, []
        self.batches.append(batch)
        return [(i, self._answer(batch[i])) for i in reversed(range(len(batch)))]

    def reset(self) -> None:
        self.resets += 1

    def _answer(self, request: Request) -> Completion:
        state = Visibility.replay(len(request.tokens), request.history, request.pinned)
        seen = [t for start, end in state.visible_ranges for t in request.tokens[start:end]]
        words = self.chat.decode([t for t in seen if t not in self.chat.stop]).split()
        if "recap" in words[-4:]:
            action = "note noise noise"
        else:
            last = len(words) - 1 - words[::-1].index("next")
            kind, key = words[last + 2 : last + 4]
            action = f"{kind} {key}" + (f" {_known(words, key)}" if kind == "put" else "")
        tokens = self.chat.encode(Message("assistant", action))[1:][: request.max_new_tokens]
        finish = "stop" if tokens[-1] in self.chat.stop else "length"
        computed = len(request.tokens)
        return Completion(tuple(tokens), finish, 0, computed, 0, state.attended, 0.001, 0.001)


def _known(words: list[str], key: str) -> str:
    found = [words[i + 2] for i in range(len(words) - 2) if words[i : i + 2] == [key, "is"]]
    return found[-1] if found else "wrong"


def toy_agent() -> Agent:
    engine = ToyEngine()
    return Agent(engine, engine.chat)


class DyingEngine(ToyEngine):
    """Kills its own process in the middle of the first cohort, once per ``flag`` file."""

    def __init__(self, flag: str) -> None:
        super().__init__()
        self._flag = flag

    def step(self) -> list[tuple[int, Completion | AkvError]]:
        if len(self.batches) == 3 and (not self._flag or not os.path.exists(self._flag)):
            if self._flag:
                with open(self._flag, "w"):
                    pass
            os._exit(9)
        return super().step()


@dataclass(frozen=True)
class MakeDying:
    flag: str

    def __call__(self) -> Agent:
        engine = DyingEngine(self.flag)
        return Agent(engine, engine.chat)


class SlowEngine(ToyEngine):
    def step(self) -> list[tuple[int, Completion | AkvError]]:
        time.sleep(0.2)
        return super().step()


class FaultyEngine(ToyEngine):
    def step(self) -> list[tuple[int, Completion | AkvError]]:
        return [(0, EngineError("out of pages"))]


def slow_agent() -> Agent:
    engine = SlowEngine()
    return Agent(engine, engine.chat)


def faulty_agent() -> Agent:
    engine = FaultyEngine()
    return Agent(engine, engine.chat)
