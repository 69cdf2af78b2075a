"""Random programs of requests, ops, cancels, evictions, preemptions and moves.

Invariants after each step: I1 the engine's own `check`; I2 every answer is the greedy one under its
history, recomputed in one pass from nothing; I3 what it attended to is what a list of flags, one a
token, says; I4 its counts add up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from akv_rsi.engine.request import Completion, Request
from akv_rsi.errors import ContextLimit
from akv_rsi.types import Drop, Op, OpHistory, Refresh, Repos, Restore
from akv_rsi.visibility import Visibility

from .tiny import VOCAB, engine

# Answers may differ from the recomputed best where that is closer than rounding.
TIE = 1e-3
PAGES = 40


@dataclass
class Talk:
    """A conversation between two calls."""

    tokens: list[int]
    history: OpHistory = field(default_factory=OpHistory)
    hidden: list[bool] = field(default_factory=list)

    def request(self, new: int) -> Request:
        return Request(tuple(self.tokens), self.history, max_new_tokens=new)


class EngineMachine(RuleBasedStateMachine):
    talks = Bundle("talks")
    calls = Bundle("calls")

    def __init__(self) -> None:
        super().__init__()
        self.engine = engine(
            pages=PAGES,
            max_batch=3,
            chunk_tokens=11,
            working_set_mib=self.mib,
            restore_passes=2,
            repos_mode=self.repos_mode,
            kv_dtype=self.kv_dtype,
        )
        self.oracle = engine(pages=PAGES, kv_dtype=self.kv_dtype)
        self.open: dict[int, Talk] = {}
        self.done: dict[int, Completion] = {}

    mib = 1
    repos_mode = "view"
    kv_dtype = "auto"
    tie = TIE

    @rule(target=talks, seed=st.integers(0, 2), length=st.integers(1, 30))
    def begin(self, seed: int, length: int) -> Talk:
        """Few seeds, so that conversations share prefixes."""
        generator = torch.Generator().manual_seed(seed)
        return Talk(torch.randint(VOCAB, (30,), generator=generator).tolist()[:length])

    @rule(target=talks, talk=talks)
    def fork(self, talk: Talk) -> Talk:
        return Talk(list(talk.tokens), talk.history, list(talk.hidden))

    @rule(target=talks, talk=consumes(talks), data=st.data())
    def edit(self, talk: Talk, data: st.DataObject) -> Talk:
        """One group of ops at the end, then new tokens."""
        state = Visibility.replay(len(talk.tokens), talk.history)
        boundaries = talk.history.boundaries
        ops = draw_ops(data, state) if boundaries[-1:] != (state.length,) else ()
        new = data.draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=6))
        hidden = talk.hidden + [False] * (len(talk.tokens) - len(talk.hidden))
        for op in ops:
            if isinstance(op, Drop | Restore):
                for start, end in op.ranges:
                    hidden[start:end] = [isinstance(op, Drop)] * (end - start)
        return Talk(talk.tokens + new, talk.history.extend(ops), hidden)

    @rule(target=calls, talk=consumes(talks), new=st.integers(1, 5))
    def submit(self, talk: Talk, new: int) -> Any:
        if len(talk.tokens) > 110:
            return multiple()
        number = self.engine.submit(talk.request(new))
        self.open[number] = talk
        return number

    @rule(count=st.integers(1, 6))
    def step(self, count: int) -> None:
        for _ in range(count):
            for number, outcome in self.engine.step():
                talk = self.open.pop(number)
                if isinstance(outcome, ContextLimit):
                    continue  # only what cannot fit an empty pool
                assert isinstance(outcome, Completion)
                self.expect_greedy(talk, outcome)
                assert outcome.attended == len(talk.tokens) - sum(talk.hidden)
                fresh = outcome.computed - outcome.refreshed - outcome.recovered
                assert outcome.cached + fresh == len(talk.tokens)
                assert outcome.matched_exact + outcome.matched_retrigger <= len(talk.tokens)
                self.done[number] = outcome
                talk.tokens.extend(outcome.tokens)

    @rule(target=talks, number=consumes(calls))
    def answer(self, number: int) -> Talk:
        """A finished call's conversation goes on."""
        talk = self.open.get(number)
        while number in self.open:
            self.step(1)
        return talk or Talk([number % VOCAB])

    @rule(number=consumes(calls))
    def cancel(self, number: int) -> None:
        assert self.engine.cancel(number) is (self.open.pop(number, None) is not None)

    @rule(pages=st.integers(1, PAGES))
    def evict(self, pages: int) -> None:
        self.engine._cache.make_room(pages)

    @rule(seed=st.integers(0, 5))
    def lose(self, seed: int) -> None:
        """Any KV that no request reads may go at any time."""
        cache = self.engine._cache
        read = cache._read_slots()[:-1].reshape(-1, cache.pool.page_size).any(1) | cache._leased()
        chosen = np.random.default_rng(seed).random(len(cache.pool.refs)) < 0.3
        cache.tree.strip(chosen & ~read & (cache.pool.refs > 0))

    @rule()
    def preempt(self) -> None:
        """The youngest running request waits, and resumes later."""
        scheduler = self.engine._scheduler
        if scheduler.running:
            running = (*scheduler._decoding, *scheduler._prefilling)
            scheduler._preempt(max(running, key=lambda one: one.number))

    @rule()
    def defragment(self) -> None:
        cache = self.engine._cache
        cache._defragmented = -PAGES
        cache.defragment(cache.readers)

    @invariant()
    def check(self) -> None:
        self.engine.check()

    def teardown(self) -> None:
        while self.open:
            self.step(1)
        self.engine.check()
        assert self.engine._cache.make_room(PAGES) or self.engine._cache.readers
        self.engine.check()

    def expect_greedy(self, talk: Talk, outcome: Completion) -> None:
        whole = [*talk.tokens, *outcome.tokens]
        logits = self.oracle.logits(whole[:-1], talk.history)[len(talk.tokens) - 1 :]
        chosen = logits.gather(1, torch.tensor(outcome.tokens)[:, None])[:, 0]
        assert (logits.max(1).values - chosen).max() < self.tie


class PagedMachine(EngineMachine):
    """Without a working set: everything is read from the pages."""

    mib = 0


class CopyingMachine(EngineMachine):
    """A Repos leaves copies."""

    mib = 0
    repos_mode = "copy"


class RoundedMachine(EngineMachine):
    """With KV in 8 bits: a code may fall to the other side where sums are made in another order."""

    kv_dtype = "int8"
    tie = 0.05


def draw_ops(data: st.DataObject, state: Visibility) -> list[Op]:
    """A valid group of ops, or none."""
    end = state.length
    ops: list[Op] = []
    visible = state.visible_in(0, end)
    if state.attended > 2 and data.draw(st.booleans()):
        start, stop = data.draw(st.sampled_from(visible))
        low = data.draw(st.integers(start, stop - 1))
        high = data.draw(st.integers(low + 1, stop))
        if high - low < state.attended:
            ops.append(Drop(end, ((low, high),)))
    hidden = [run for run in state.runs if not run.visible]
    moved = data.draw(st.booleans())
    if hidden and data.draw(st.booleans()):
        run = data.draw(st.sampled_from(hidden))
        ops.append(Restore(end, ((run.start, run.end),)))
        moved |= run.position is None
    if moved:
        ops.append(Repos(end))
    now = state.apply(ops).visibility
    if data.draw(st.booleans()):
        start, stop = data.draw(st.sampled_from(now.visible_ranges))
        low = data.draw(st.integers(start, stop - 1))
        ops.append(Refresh(end, ((low, data.draw(st.integers(low + 1, stop))),)))
    return ops


SETTINGS = settings(
    max_examples=16,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestEngine = EngineMachine.TestCase
TestEngine.settings = SETTINGS
TestPaged = PagedMachine.TestCase
TestPaged.settings = SETTINGS
TestCopying = CopyingMachine.TestCase
TestCopying.settings = SETTINGS
TestRounded = RoundedMachine.TestCase
TestRounded.settings = settings(SETTINGS, max_examples=8)


class LongMachine(EngineMachine):
    """Ten thousand steps."""


TestLong = pytest.mark.slow(LongMachine.TestCase)
TestLong.settings = settings(SETTINGS, max_examples=200, stateful_step_count=50)
