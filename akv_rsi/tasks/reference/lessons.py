"""What the reference agent learns from: expert episodes under random cache operations.

Each lesson is one conversation as the expert would have it, with ops such as real policies use:
nothing, hindsight, rolling windows, whole tools, single messages; some with refreshed notes and
repositioned histories. A value that was dropped for good is no target: nobody could know it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from akv_rsi.tasks.agent import ChatFormat
from akv_rsi.tasks.environment import Message
from akv_rsi.tasks.suites.world import ScriptedEnvironment, Step
from akv_rsi.types import Drop, Op, OpHistory, Range, Refresh, Repos
from akv_rsi.visibility import Visibility

Style = Literal["keep", "hindsight", "rolling", "tools", "scattered"]
ANSWER_ROOM = 16  # tokens kept free inside the span for the next answer


@dataclass(frozen=True, slots=True)
class Lesson:
    """One training sequence. ``targets[i]`` tells whether token ``i`` is to be predicted."""

    tokens: tuple[int, ...]
    targets: tuple[bool, ...]
    history: OpHistory
    repositioned: int


@dataclass(frozen=True, slots=True)
class Plan:
    """How a lesson's cache is treated.

    Positions stay below ``span``: the history is repositioned before they would not, at most
    ``max_repos`` times, and then the lesson ends. After a drop, ``early_repos`` and ``refresh`` are
    the probabilities of a Repos before it is due and of recomputing the notes behind the drop.
    """

    style: Style
    span: int
    max_repos: int = 0
    early_repos: float = 0.0
    refresh: float = 0.0


@dataclass(slots=True)
class _Part:
    start: int
    end: int
    message: Message
    turn: int
    dropped: bool = False


Chooser = Callable[[int, _Part, int, frozenset[int]], bool]


@dataclass(slots=True)
class _Conversation:
    """One conversation as it grows, with its ops."""

    chat: ChatFormat
    plan: Plan
    rng: random.Random
    tokens: list[int] = field(default_factory=list)
    targets: list[bool] = field(default_factory=list)
    parts: list[_Part] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    state: Visibility = field(default_factory=Visibility)
    repositioned: int = 0

    def say(self, message: Message, turn: int) -> _Part:
        ids = self.chat.encode(message)
        part = _Part(len(self.tokens), len(self.tokens) + len(ids), message, turn)
        self.tokens.extend(ids)
        self.targets.extend([False] * len(ids))
        self.parts.append(part)
        return part

    def learn(self, part: _Part, known: bool) -> None:
        """Makes an answer a target, all but its last word where that cannot be known."""
        for i in range(part.start + 1, part.end):
            self.targets[i] = known or i != part.end - 2

    def operate(self, gone: list[_Part], boundary: int) -> bool:
        """The ops at ``boundary``; False when what follows would leave the span."""
        self.state = self.state.append(boundary - self.state.length)
        ops: list[Op] = [Drop(boundary, _ranges(gone))] if gone else []
        for part in gone:
            part.dropped = True
        room = len(self.tokens) - boundary + ANSWER_ROOM
        early = bool(gone) and self.rng.random() < self.plan.early_repos
        due = self.state.next_position + room > self.plan.span
        if (early or due) and self.repositioned < self.plan.max_repos:
            ops.append(Repos(boundary))
            self.repositioned += 1
        if gone and self.rng.random() < self.plan.refresh:
            notes = [p for p in self.parts if _is_note(p) and gone[0].start < p.start < boundary]
            if ranges := _ranges([p for p in notes if not p.dropped]):
                ops.append(Refresh(boundary, ranges))
        if ops:
            self.state = self.state.apply(ops).visibility
            self.ops.extend(ops)
        return self.state.next_position + room <= self.plan.span

    def upto(self, end: int) -> Lesson:
        """The lesson so far, cut before token ``end``."""
        history = OpHistory(tuple(op for op in self.ops if op.boundary < end))
        repositioned = sum(isinstance(op, Repos) for op in history)
        return Lesson(tuple(self.tokens[:end]), tuple(self.targets[:end]), history, repositioned)


def write_lesson(
    env: ScriptedEnvironment, chat: ChatFormat, plan: Plan, rng: random.Random
) -> Lesson:
    """The expert's episode in ``env`` under ``plan``, up to where the plan's span is used up."""
    talk = _Conversation(chat, plan, rng)
    choose = _chooser(plan.style, rng)
    sources: dict[str, list[int]] = {}
    fresh = env.reset().messages
    for turn, step in enumerate(env.steps):
        boundary = len(talk.tokens)
        old = [(i, p) for i, p in enumerate(talk.parts[:-1]) if i >= 2 and not p.dropped]
        for message in fresh:
            talk.say(message, turn - 1)
        needed = env.needed()
        gone = [p for i, p in old if choose(i, p, turn, needed)]
        if turn and not talk.operate(gone, boundary):
            return talk.upto(boundary)
        known = all(any(not talk.parts[i].dropped for i in sources[fact]) for fact in step.needs)
        talk.learn(talk.say(action_message(step), turn), known)
        spoken = len(talk.parts) - 1
        for fact in step.restates:
            sources[fact].append(spoken)
        sources.update({fact: [spoken + 1] for fact in step.shows})
        fresh = env.step(step.action).messages
    return talk.upto(len(talk.tokens))


def write_recap(env: ScriptedEnvironment, chat: ChatFormat, turns: int) -> Lesson:
    """The first ``turns`` of an episode, a request for a recap, its answer: every fact shown."""
    steps = env.steps[:turns]
    talk = _Conversation(chat, Plan("keep", 1 << 30), random.Random(0))
    fresh = env.reset().messages
    for turn, step in enumerate(steps):
        for message in fresh:
            talk.say(message, turn)
        talk.say(action_message(step), turn)
        fresh = env.step(step.action).messages
    for message in (*fresh, chat.summary_request()):
        talk.say(message, len(steps))
    shown = [fact for step in steps for fact in step.shows if fact in env.script.facts]
    pairs = [" ".join(env.script.facts[fact]) for fact in shown]
    talk.learn(talk.say(Message("assistant", recap_text(pairs)), len(steps)), known=True)
    return talk.upto(len(talk.tokens))


def recap_text(pairs: list[str]) -> str:
    """The agent's recap of ``key value`` pairs."""
    return f"recap {' , '.join(pairs)}"


def action_message(step: Step) -> Message:
    """The expert's answer to a step as a message."""
    return Message("assistant" if step.restates else "tool_call", step.action)


def _is_note(part: _Part) -> bool:
    return part.message.kind == "assistant"


def _ranges(parts: list[_Part]) -> tuple[Range, ...]:
    out: list[Range] = []
    for part in parts:
        if out and out[-1][1] == part.start:
            out[-1] = (out[-1][0], part.end)
        else:
            out.append((part.start, part.end))
    return tuple(out)


def _chooser(style: Style, rng: random.Random) -> Chooser:
    """Which older messages to drop before a call: ``(index, part, turn, needed) -> bool``."""
    age = rng.randint(1, 4)
    results_only = rng.random() < 0.5
    rate = rng.choice((0.15, 0.4, 1.0))
    window = rng.randint(2, 20)
    tools: dict[str, bool] = {}

    def droppable(part: _Part, turn: int, least: int) -> bool:
        kind = part.message.kind
        return turn - part.turn > least and not (results_only and kind != "tool_result")

    def hindsight(index: int, part: _Part, turn: int, needed: frozenset[int]) -> bool:
        return droppable(part, turn, age) and index not in needed and rng.random() < rate

    def rolling(index: int, part: _Part, turn: int, needed: frozenset[int]) -> bool:
        return droppable(part, turn, window) and not _is_note(part)

    def by_tool(index: int, part: _Part, turn: int, needed: frozenset[int]) -> bool:
        name = part.message.tool or part.message.text.split()[0]
        return droppable(part, turn, age) and tools.setdefault(name, rng.random() < 0.5)

    def scattered(index: int, part: _Part, turn: int, needed: frozenset[int]) -> bool:
        return droppable(part, turn, age) and rng.random() < rate * 0.2

    choices: dict[Style, Chooser] = {
        "hindsight": hindsight,
        "rolling": rolling,
        "tools": by_tool,
        "scattered": scattered,
    }
    return choices.get(style, lambda index, part, turn, needed: False)
