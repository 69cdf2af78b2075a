from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from akv_rsi.engine.view import DeltaRun, View
from akv_rsi.types import Drop, Op, Refresh, Repos, Restore
from akv_rsi.visibility import Visibility

PAGE = 4


def view_of(count: int) -> View:
    view = View(64)
    view.append(np.arange(100, 100 + count))
    return view


def test_a_drop_is_a_mask_and_moves_nothing() -> None:
    view = view_of(12)
    view.apply(view.state.apply([Drop(12, ((3, 6),))]), np.empty(0, dtype=np.int64))
    keys = view.keys()
    assert keys.tokens.tolist() == [0, 1, 2, 6, 7, 8, 9, 10, 11]
    assert keys.runs == (DeltaRun(0, 9, 0),)
    entries = view.entries(PAGE)
    assert entries.page.tolist() == [25, 26, 27]
    assert [f"{mask:04b}" for mask in entries.mask] == ["0111", "1100", "1111"]
    assert view.next_position == 12


def test_a_repos_is_a_delta_and_costs_no_slot() -> None:
    view = view_of(12)
    ops: list[Op] = [Drop(12, ((3, 6),)), Repos(12)]
    view.apply(view.state.apply(ops), np.empty(0, dtype=np.int64))
    keys = view.keys()
    assert keys.runs == (DeltaRun(0, 3, 0), DeltaRun(3, 9, -3))
    assert keys.positions.tolist() == list(range(9))
    assert keys.slots.tolist() == [100, 101, 102, *range(106, 112)]
    assert set(view.entries(PAGE).delta.tolist()) == {0, -3}
    view.append(np.array([7]))
    assert view.keys().positions[-1] == 9


def test_a_refresh_moves_tokens_to_new_slots_born_where_they_are() -> None:
    view = view_of(12)
    ops: list[Op] = [Drop(12, ((3, 6),)), Repos(12), Refresh(12, ((8, 10),))]
    applied = view.state.apply(ops)
    assert applied.refreshed == ((8, 10),)
    view.apply(applied, np.array([50, 51]))
    keys = view.keys()
    assert keys.slots.tolist() == [100, 101, 102, 106, 107, 50, 51, 110, 111]
    assert keys.runs == (
        DeltaRun(0, 3, 0),
        DeltaRun(3, 5, -3),
        DeltaRun(5, 7, 0),
        DeltaRun(7, 9, -3),
    )
    assert view.births(np.array([8, 9])).tolist() == [5, 6]


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, list[Op]]]:
    """Valid groups of ops on a growing sequence."""
    state, groups = Visibility(), []
    for _ in range(draw(st.integers(1, 5))):
        state = state.append(draw(st.integers(2, 9)))
        start = draw(st.integers(1, state.length - 1))
        end = draw(st.integers(start + 1, state.length))
        ops: list[Op] = []
        dropped = state.visible_in(start, end)
        if dropped and draw(st.booleans()):
            ops.append(Drop(state.length, dropped))
        hidden = [r for r in state.runs if not r.visible]
        moved = draw(st.booleans())
        if hidden and not ops and draw(st.booleans()):
            run = draw(st.sampled_from(hidden))
            ops.append(Restore(state.length, ((run.start, run.end),)))
            moved |= run.position is None
        if moved:
            ops.append(Repos(state.length))
        after = state.apply(ops).visibility if ops else state
        fresh = after.visible_in(start, state.length)
        if fresh and draw(st.booleans()):
            ops.append(Refresh(state.length, fresh))
        if ops:
            groups.append((state.length, ops))
            state = state.apply(ops).visibility
    return groups


@settings(max_examples=150, deadline=None)
@given(histories())
def test_keys_and_entries_agree_with_a_token_by_token_book(
    groups: list[tuple[int, list[Op]]],
) -> None:
    """Slots, births and places kept per token in lists, one op at a time."""
    view, slot, birth, place, seen = View(64), [], [], [], []
    fresh = iter(range(1000, 2000))
    for boundary, ops in [*groups, (60, [])]:
        new = [next(fresh) for _ in range(boundary - len(slot))]
        first = view.next_position
        view.append(np.array(new, dtype=np.int64))
        slot += new
        birth += range(first, first + len(new))
        place += range(first, first + len(new))
        seen += [True] * len(new)
        if not ops:
            break
        applied = view.state.apply(ops)
        for op in ops:
            if isinstance(op, Drop | Restore):
                for token in (t for r in op.ranges for t in range(*r)):
                    seen[token] = isinstance(op, Restore)
            elif isinstance(op, Repos):
                for position, token in enumerate(t for t in range(len(slot)) if seen[t]):
                    place[token] = position
        tokens = [t for r in applied.refreshed for t in range(*r)]
        slots = [next(fresh) for _ in tokens]
        for token, s in zip(tokens, slots, strict=True):
            slot[token], birth[token] = s, place[token]
        view.apply(applied, np.array(slots, dtype=np.int64))
    keys = view.keys()
    visible = [t for t in range(len(slot)) if seen[t]]
    assert keys.tokens.tolist() == visible
    assert keys.slots.tolist() == [slot[t] for t in visible]
    assert keys.positions.tolist() == [place[t] for t in visible]
    deltas = [run.delta for run in keys.runs for _ in range(run.start, run.end)]
    assert deltas == [place[t] - birth[t] for t in visible]
    entries = view.entries(PAGE)
    spread = [
        (page * PAGE + bit, delta)
        for page, mask, delta in zip(*entries, strict=True)
        for bit in range(PAGE)
        if mask >> bit & 1
    ]
    assert sorted(spread) == sorted(zip(keys.slots, deltas, strict=True))
