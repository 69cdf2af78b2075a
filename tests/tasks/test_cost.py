"""Cost: by hand, and by property."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akv_rsi.errors import ConfigError
from akv_rsi.tasks.cost import (
    PRESETS,
    PriceModel,
    cost_of,
    load_prices,
    prices_from,
    usage_of,
    usages,
)
from akv_rsi.types import Call, Drop, Op, Refresh, Repos, Restore, Trajectory, Usage

API = PriceModel("api", read=0.1, write=1.25, output=5.0)
ENGINE = PriceModel("engine", read=0.1, write=1.25, output=5.0, caches_output=True)


def trajectory(*calls: Call) -> Trajectory:
    return Trajectory("t", (), calls)


def test_keep_everything_by_hand() -> None:
    """Prompt 100, answer 10, 40 more: an API re-reads the prompt and writes the answer."""
    steps = list(usages(trajectory(Call(100, 0, 10), Call(150, 110, 5)), API))
    assert steps == [Usage(1, 100, 0, 100, 10), Usage(1, 50, 100, 50, 5)]
    assert cost_of(trajectory(Call(100, 0, 10), Call(150, 110, 5)), API) == pytest.approx(
        1.25 * 150 + 0.1 * 100 + 5 * 15
    )


def test_an_engine_keeps_the_answer() -> None:
    steps = list(usages(trajectory(Call(100, 0, 10), Call(150, 110, 5)), ENGINE))
    assert steps[1] == Usage(1, 40, 110, 40, 5)


def test_dropped_tokens_are_not_read_and_restored_ones_are_again() -> None:
    steps = list(
        usages(
            trajectory(
                Call(100, 0, 10),
                Call(150, 110, 5, (Drop(110, ((20, 60),)),)),
                Call(170, 155, 5, (Restore(155, ((20, 60),)),)),
            ),
            ENGINE,
        )
    )
    assert [s.cached for s in steps] == [0, 70, 155]
    assert [s.uncached for s in steps] == [100, 40, 15]


def test_refreshed_tokens_are_computed_instead_of_read() -> None:
    ops: tuple[Op, ...] = (Drop(110, ((20, 60),)), Refresh(110, ((60, 90),)))
    steps = list(usages(trajectory(Call(100, 0, 10), Call(150, 110, 5, ops)), API))
    assert steps[1] == Usage(1, uncached=80, cached=30, written=80, output=5, refreshed=30)


def test_a_refresh_that_changes_nothing_is_free() -> None:
    plain = trajectory(Call(100, 0, 10), Call(150, 110, 5))
    noop = trajectory(Call(100, 0, 10), Call(150, 110, 5, (Refresh(110, ((60, 90),)),)))
    assert usage_of(plain, API) == usage_of(noop, API)


def test_repos_is_free() -> None:
    drop = Drop(110, ((20, 60),))
    without = trajectory(Call(100, 0, 10), Call(150, 110, 5, (drop,)))
    with_it = trajectory(Call(100, 0, 10), Call(150, 110, 5, (drop, Repos(110))))
    assert usage_of(without, API) == usage_of(with_it, API)


def test_an_edit_pays_for_everything_behind_it() -> None:
    """Only 20 tokens are left in front of the edit: 100 of the 120 are computed again."""
    steps = list(usages(trajectory(Call(100, 0, 10), Call(120, 20, 5)), API))
    assert steps[1] == Usage(1, uncached=100, cached=20, written=100, output=5)


def test_an_edit_takes_later_ops_with_it() -> None:
    steps = list(
        usages(
            trajectory(
                Call(100, 0, 10),
                Call(150, 110, 5, (Drop(110, ((20, 60),)),)),
                Call(120, 80, 5),
                Call(130, 125, 5),
            ),
            API,
        )
    )
    assert [s.cached for s in steps] == [0, 60, 80, 120]


def test_an_auxiliary_call_reads_what_it_shares_and_writes_nothing() -> None:
    calls = (Call(100, 0, 10), Call(90, 80, 30, auxiliary=True), Call(120, 20, 5))
    steps = list(usages(trajectory(*calls), API))
    assert steps[1] == Usage(1, uncached=10, cached=80, written=0, output=30)
    assert steps[2] == Usage(1, uncached=100, cached=20, written=100, output=5)
    assert API.cost(steps[1]) == pytest.approx(10 + 0.1 * 80 + 5 * 30)


def test_kv_read_share() -> None:
    assert API.kv_read_share(Usage(1, 10, 100, 10, 0)) == pytest.approx(10 / 22.5)
    assert API.kv_read_share(Usage()) == 0.0


def test_presets_and_user_prices(tmp_path: Path) -> None:
    assert set(PRESETS) == {"claude", "deepseek", "gpt", "gpu"}
    claude = load_prices("claude")
    assert (claude.read, claude.write, claude.output, claude.input) == (0.1, 1.25, 5.0, 1.0)
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps({"read": 0.3, "write": 3.75, "output": 15, "input": 3}))
    assert load_prices(str(mine)) == PriceModel("mine", 0.3, 3.75, 15, 3)


@pytest.mark.parametrize(
    "values",
    [
        {"read": 0.1, "write": 1, "output": 5, "reed": 1},
        {"read": 0.1, "write": 1},
        {"read": -0.1, "write": 1, "output": 5},
        {"read": "0.1", "write": 1, "output": 5},
        {"read": True, "write": 1, "output": 5},
        {"read": float("nan"), "write": 1, "output": 5},
        {"read": 0.1, "write": 0, "output": 0, "input": 0},
        {"read": 0.1, "write": 1, "output": 5, "caches_output": "yes"},
    ],
)
def test_bad_prices_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        prices_from(values)


@pytest.mark.parametrize("content", ["[1]", "{", None])
def test_bad_price_files_are_refused(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "prices.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError):
        load_prices(str(path))


def test_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="claude, deepseek, gpt, gpu"):
        load_prices("cloud")


@st.composite
def growing(draw: st.DrawFn, drops: bool) -> Trajectory:
    """An append-only conversation, with drops of visible tokens (and refreshes) if asked for."""
    calls: list[Call] = []
    boundary, dropped = 0, 4
    for _ in range(draw(st.integers(1, 8))):
        ops: list[Op] = []
        if drops and boundary - dropped > 2 and draw(st.booleans()):
            end = draw(st.integers(dropped + 1, boundary - 1))
            ops.append(Drop(boundary, ((dropped, end),)))
            dropped = end
            if draw(st.booleans()):
                ops.append(Refresh(boundary, ((end, boundary),)))
        prompt = boundary + draw(st.integers(5, 50))
        output = draw(st.integers(1, 9))
        calls.append(Call(prompt, boundary, output, tuple(ops)))
        boundary = prompt + output
    return trajectory(*calls)


def kept(t: Trajectory) -> Trajectory:
    return trajectory(*(Call(c.prompt, c.reused, c.output) for c in t.calls))


def without_refresh(t: Trajectory) -> Trajectory:
    return trajectory(
        *(
            Call(
                c.prompt, c.reused, c.output, tuple(o for o in c.ops if not isinstance(o, Refresh))
            )
            for c in t.calls
        )
    )


@given(growing(drops=True), st.sampled_from([API, ENGINE]))
def test_dropping_never_adds_reads_or_changes_the_rest(t: Trajectory, prices: PriceModel) -> None:
    drop, full = without_refresh(t), kept(t)
    for a, b in zip(usages(drop, prices), usages(full, prices), strict=True):
        assert a.cached <= b.cached
        assert (a.uncached, a.written, a.output) == (b.uncached, b.written, b.output)
    assert cost_of(drop, prices) <= cost_of(full, prices)


@given(growing(drops=True))
def test_a_refresh_moves_tokens_from_read_to_computed(t: Trajectory) -> None:
    for a, b in zip(usages(t, API), usages(without_refresh(t), API), strict=True):
        assert a.uncached == b.uncached + a.refreshed
        assert b.cached - a.refreshed <= a.cached <= b.cached


@given(growing(drops=True), st.sampled_from(list(PRESETS.values())))
def test_a_trajectory_costs_the_sum_of_its_calls(t: Trajectory, prices: PriceModel) -> None:
    total = sum(prices.cost(u) for u in usages(t, prices))
    assert cost_of(t, prices) == pytest.approx(total)
    assert usage_of(t, prices).calls == len(t.calls)


@given(growing(drops=False))
def test_keeping_everything_computes_each_token_once(t: Trajectory) -> None:
    """Under an engine's cache all but the sampled tokens are computed exactly once."""
    last = t.calls[-1]
    sampled = sum(c.output for c in t.calls[:-1])
    assert usage_of(t, ENGINE).uncached == last.prompt - sampled


@given(st.lists(growing(drops=True), min_size=2, max_size=5), st.randoms())
def test_costs_do_not_depend_on_run_order(ts: list[Trajectory], rng: object) -> None:
    costs = {id(t): cost_of(t, API) for t in ts}
    rng.shuffle(ts)  # type: ignore[attr-defined]
    assert {id(t): cost_of(t, API) for t in ts} == costs


@given(growing(drops=False), st.data())
def test_an_edit_charges_the_suffix(t: Trajectory, data: st.DataObject) -> None:
    """The earlier the edit, the more is computed; never less than without one."""
    last = t.calls[-1]
    end = last.prompt + last.output
    late = data.draw(st.integers(0, end))
    early = data.draw(st.integers(0, late))
    costs = [
        cost_of(trajectory(*t.calls, Call(end + 5, reused, 3)), API)
        for reused in (early, late, end)
    ]
    assert costs[0] >= costs[1] >= costs[2]
