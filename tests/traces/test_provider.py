"""Provider rules: by hand, and by property. Without rules they are `cost.usages`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from akv_rsi.errors import ConfigError
from akv_rsi.tasks.cost import PRESETS, PriceModel, usages
from akv_rsi.tasks.traces.provider import (
    FREE,
    RULES,
    CacheRules,
    Tariff,
    add_up,
    bill,
    load_tariff,
)
from akv_rsi.types import Call, Drop, Op, Refresh, Trajectory, Usage

API = PriceModel("api", read=0.1, write=1.25, output=5.0)
ENGINE = PriceModel("engine", read=0.1, write=1.25, output=5.0, caches_output=True)
GROWING = (Call(2000, 0, 100), Call(2600, 2100, 100), Call(3300, 2700, 100))


def cached(rules: CacheRules, *calls: Call, times: tuple[float, ...] = ()) -> list[int]:
    return [usage.cached for usage in bill(calls, Tariff(API, rules), times).usages]


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Call, ...]:
    """Growing text with drops and refreshes, edits of the text and calls beside it."""
    calls: list[Call] = []
    end, dropped, steps = 0, 4, draw(st.integers(1, 9))
    for _ in range(steps):
        what = draw(st.sampled_from(["grow", "drop", "edit", "aside"]))
        reused, ops = end, list[Op]()
        if what == "edit" and end:
            reused = draw(st.integers(1, end))
            dropped = max(4, min(dropped, reused))
        if what == "drop" and end - dropped > 2:
            until = draw(st.integers(dropped + 1, end - 1))
            ops.append(Drop(end, ((dropped, until),)))
            dropped = until
            if draw(st.booleans()):
                ops.append(Refresh(end, ((until, end),)))
        if what == "aside" and end:
            calls.append(Call(end + 5, end, 7, auxiliary=True))
        prompt = reused + draw(st.integers(5, 60))
        output = draw(st.integers(0, 9))
        calls.append(Call(prompt, reused, output, tuple(ops)))
        end = prompt + output
        dropped = min(dropped, end)
    return tuple(calls)


@settings(deadline=None)
@given(conversations(), st.sampled_from([API, ENGINE]))
def test_without_rules_a_bill_is_the_cost_model(
    calls: tuple[Call, ...], prices: PriceModel
) -> None:
    expected = [*usages(Trajectory("t", (), calls), prices)]
    assert [*bill(calls, Tariff(prices, FREE)).usages] == expected


@settings(deadline=None)
@given(conversations(), st.sampled_from(list(RULES.values())))
def test_rules_only_take_from_the_cache(calls: tuple[Call, ...], rules: CacheRules) -> None:
    ideal, ruled = (bill(calls, Tariff(ENGINE, r)).usages for r in (FREE, rules))
    for ours, theirs in zip(ruled, ideal, strict=True):
        assert ours.cached <= theirs.cached
        assert ours.uncached >= theirs.uncached
        assert ours.output == theirs.output


def test_an_api_caches_prompts_and_an_engine_answers_too() -> None:
    assert cached(FREE, *GROWING) == [0, 2000, 2600]
    assert [u.cached for u in bill(GROWING, Tariff(ENGINE)).usages] == [0, 2100, 2700]


def test_short_prefixes_are_not_cached_and_not_written() -> None:
    assert cached(CacheRules(minimum=2500), *GROWING) == [0, 0, 2600]
    first, *_ = bill(GROWING, Tariff(API, CacheRules(minimum=2500))).usages
    assert (first.uncached, first.written) == (2000, 0)


def test_hits_are_whole_blocks() -> None:
    assert cached(CacheRules(block=128), *GROWING) == [0, 1920, 2560]


def test_an_entry_dies_after_its_time_and_each_use_renews_it() -> None:
    rules = CacheRules(ttl=300)
    assert cached(rules, *GROWING, times=(0, 299, 598)) == [0, 2000, 2600]
    assert cached(rules, *GROWING, times=(0, 299, 600)) == [0, 2000, 0]
    assert cached(rules, *GROWING) == [0, 2000, 2600], "without times nothing is known to expire"


def test_after_an_edit_only_what_an_earlier_prompt_ended_is_found() -> None:
    edited = (*GROWING, Call(3000, 2500, 100))
    assert cached(FREE, *edited)[-1] == 2500
    assert cached(CacheRules(entries=True), *edited)[-1] == 2000
    deeper = (*GROWING, Call(3000, 1500, 100), Call(3500, 3100, 10))
    assert cached(CacheRules(entries=True), *deeper)[-2:] == [0, 3000]


def test_a_warm_beginning_is_read_unless_it_has_expired() -> None:
    tariff = Tariff(API, CacheRules(ttl=300))
    warm = bill(GROWING, tariff, (400, 410, 420), warm=1500, since=200)
    assert [u.cached for u in warm.usages] == [1500, 2000, 2600]
    cold = bill(GROWING, tariff, (600, 610, 620), warm=1500, since=200)
    assert [u.cached for u in cold.usages] == [0, 2000, 2600]


def test_storage_is_paid_for_token_hours() -> None:
    tariff = Tariff(API, CacheRules(ttl=3600, storage=2.0))
    billed = bill(GROWING[:2], tariff, (0, 1800))
    assert billed.kept == pytest.approx(2000 * 0.5)
    assert billed.cost(tariff) == pytest.approx(API.cost(billed.usage) + 2000)


def test_extra_output_is_billed_to_its_call() -> None:
    billed = bill(GROWING, Tariff(API), extra=(5, 0, 7))
    assert [u.output for u in billed.usages] == [105, 100, 107]


@settings(deadline=None)
@given(st.lists(st.builds(Usage, *[st.integers(0, 99)] * 6), max_size=9))
def test_sums(values: list[Usage]) -> None:
    assert add_up(values) == sum(values, Usage())


def test_presets_have_rules_and_files_may(tmp_path: Path) -> None:
    assert set(RULES) == set(PRESETS)
    assert load_tariff("claude") == Tariff(PRESETS["claude"], RULES["claude"])
    mine = tmp_path / "mine.json"
    values = {"read": 0.5, "write": 1, "output": 4}
    mine.write_text(json.dumps(values | {"cache": {"ttl": 60, "block": 16}}))
    assert load_tariff(str(mine)).rules == CacheRules(ttl=60, block=16)
    mine.write_text(json.dumps(values))
    assert load_tariff(str(mine)).rules == FREE


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"read": 1, "write": 1, "output": 1, "cache": 3}', "object"),
        ('{"read": 1, "write": 1, "output": 1, "cache": {"tll": 3}}', "tll"),
        ('{"read": 1, "write": 1, "output": 1, "cache": {"block": 0}}', "cannot be used"),
        ("{", "cannot be read"),
        ("[]", "one JSON object"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, content: str, words: str) -> None:
    mine = tmp_path / "mine.json"
    mine.write_text(content)
    with pytest.raises(ConfigError, match=words):
        load_tariff(str(mine))


def test_unknown_prices_name_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="claude, deepseek, gpt, gpu"):
        load_tariff("cloud")
