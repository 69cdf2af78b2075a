"""`closure` against its definition: random histories, random losses, random plans."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from akv_rsi.engine.closure import Read, closure
from akv_rsi.visibility import Visibility

from .book import groups
from .convert import converted
from .histories import draw
from .units import Units

LENGTH = 40


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32), share=st.sampled_from([0.1, 0.4, 0.9, 1.0]))
def test_it_is_what_planned_queries_read_and_nothing_more(seed: int, share: float) -> None:
    rng = Random(seed)
    history, _ = draw(rng, LENGTH, rng.randint(0, 4))
    units = Units(history, LENGTH)
    states = [Visibility()]
    for boundary, ops in groups(history):
        states.append(
            states[-1].append(boundary - states[-1].length).apply(converted(ops)).visibility
        )
    gone = {unit for unit in units.sources if rng.random() < share}
    read, reads = set(), []
    for epoch in rng.sample(range(len(states)), rng.randint(0, len(states))):
        end = rng.randint(0, max(t for t, _ in units.shown[epoch]) + 1)
        state = states[epoch]
        reads.append(Read(state.append(max(0, end - state.length)), end))
        read |= {(token, made) for token, made in units.shown[epoch] if token < end}
    lost = [np.array(sorted(t for t, e in gone if e == epoch)) for epoch in range(len(states))]
    found = closure(reads, states, [tokens.astype(np.int64) for tokens in lost])
    assert {(t, e) for e, tokens in enumerate(found) for t in tokens} == units.needed(read, gone)
    assert all((np.diff(tokens) > 0).all() for tokens in found)


def test_nothing_planned_needs_nothing() -> None:
    assert closure([], [Visibility()], [np.arange(5)])[0].size == 0
