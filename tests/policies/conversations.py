"""Conversations for the tests of policies: written by hand, or drawn at random."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Protocol

from akv_rsi.types import Op, Segment, SegmentKind, Snapshot
from akv_rsi.visibility import Applied, Visibility

WORDS = ("amber", "basil", "cedar", "delta", "ember", "flint", "grape", "hazel", "ivory", "jade")


class Decides(Protocol):
    def decide(self, snapshot: Snapshot) -> tuple[Op, ...]: ...


class Talk:
    """A conversation that grows, in step with what is visible of it. Guards are on."""

    def __init__(self, name: str = "talk", reliable_span: int = 1000) -> None:
        self.name = name
        self.reliable_span = reliable_span
        self.turn = 0
        self.segments: list[Segment] = []
        self.visibility = Visibility()
        self.attention: dict[int, float] | None = None

    def say(self, kind: SegmentKind, text: str = "", tokens: int = 10, **more: Any) -> Segment:
        """Adds a segment that is not computed yet."""
        start = self.segments[-1].end if self.segments else 0
        turn = max(self.turn - 1, 0)
        segment = Segment(len(self.segments), kind, turn, start, start + tokens, text, **more)
        self.segments.append(segment)
        return segment

    def call(self, kind: SegmentKind = "tool_call", text: str = "", tokens: int = 5) -> Segment:
        """The LLM call: everything so far is computed, and its output."""
        self.turn += 1
        segment = self.say(kind, text, tokens)
        self.visibility = self.visibility.append(segment.end - self.visibility.length)
        return segment

    def result(self, text: str = "", tokens: int = 10, **more: Any) -> Segment:
        """A tool's answer."""
        return self.say("tool_result", text, tokens, **{"tool": "open", "call": text, **more})

    def snapshot(self) -> Snapshot:
        return Snapshot(
            self.name,
            self.turn,
            tuple(self.segments),
            self.visibility,
            self.reliable_span,
            attention=self.attention,
        )

    def apply(self, ops: Sequence[Op]) -> Applied:
        """The ops take effect; raises whatever the contract or its guards forbid."""
        pinned = [(s.start, s.end) for s in self.segments if s.pinned]
        applied = self.visibility.apply(ops, pinned)
        self.visibility = applied.visibility
        return applied


def opening(name: str = "talk", reliable_span: int = 1000) -> Talk:
    """System message (10 tokens, pinned) and user message (10)."""
    talk = Talk(name, reliable_span)
    talk.say("system", "you are an agent", pinned=True)
    talk.say("user", "repair the service")
    return talk


def random_turns(talk: Talk, rng: Random, turns: int) -> Iterator[Snapshot]:
    """Lets ``talk`` grow at random; yields it before each call, when ops may be applied."""
    for _ in range(turns):
        yield talk.snapshot()
        if rng.random() < 0.2:
            talk.call("reasoning", _text(rng, 6), rng.randint(1, 9))
            talk.turn -= 1
            talk.segments[-1] = replace(talk.segments[-1], turn=talk.turn)
        talk.call(rng.choice(["tool_call", "assistant"]), _text(rng, 3), rng.randint(1, 9))
        for _ in range(rng.choice([0, 1, 1, 1, 2])):
            talk.result(
                _text(rng, 8),
                rng.randint(1, 40),
                tool=rng.choice(["open", "grep"]),
                call=rng.choice(WORDS[:4]),
                is_error=rng.random() < 0.1,
                ephemeral=rng.random() < 0.2,
            )
        talk.attention = {s.id: round(rng.random(), 3) for s in talk.segments}


def random_talk(seed: int, reliable_span: int = 120) -> tuple[Talk, Random]:
    rng = Random(seed)
    talk = opening(f"random-{seed}", reliable_span)
    talk.attention = {}
    return talk, rng


def recorded(seed: int, turns: int = 12, policy: Decides | None = None) -> list[Snapshot]:
    """The snapshots of a random conversation, its ops decided by ``policy``."""
    talk, rng = random_talk(seed)
    snapshots = []
    for snapshot in random_turns(talk, rng, turns):
        snapshots.append(snapshot)
        if policy is not None:
            talk.apply(policy.decide(snapshot))
    return snapshots


def _text(rng: Random, words: int) -> str:
    picked = [rng.choice(WORDS) for _ in range(rng.randint(1, words))]
    return " ".join(w if rng.random() < 0.7 else f"{w}_{rng.randint(0, 30)}" for w in picked)
