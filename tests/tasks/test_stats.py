"""Intervals and tests for paired results."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from akv_rsi.tasks.stats import accuracy, compare, difference, ratio, sign_test

COSTS = st.lists(st.floats(0.1, 1e4), min_size=2, max_size=40)


@given(COSTS, st.integers(0, 5))
def test_a_policy_against_itself(costs: list[float], seed: int) -> None:
    assert ratio(costs, costs, seed) == pytest.approx((1, 1, 1))
    assert difference(costs, costs, seed) == (0, 0, 0)


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(0, 5))
def test_a_a_is_undecided(successes: list[bool], seed: int) -> None:
    result = compare(successes, successes, seed)
    assert result.verdict == "undecided"
    assert result.p_value == 1.0


def test_two_runs_of_one_noisy_policy_are_rarely_decided() -> None:
    """A/A with noise: both sides are draws of the same accuracy."""
    rng = np.random.default_rng(0)
    draws = rng.random((200, 2, 64)) < 0.7
    decided = sum(compare(list(a), list(b)).verdict != "undecided" for a, b in draws)
    assert decided <= 12  # 5% of 200 and a little


def test_a_clear_difference_is_found_both_ways() -> None:
    good, bad = [True] * 30, [True] * 20 + [False] * 10
    assert compare(good, bad).verdict == "better"
    assert compare(bad, good).verdict == "worse"
    assert compare(good, bad).difference.estimate == pytest.approx(1 / 3)


def test_a_few_differing_tasks_do_not_decide() -> None:
    """Four of four would satisfy the bootstrap interval alone."""
    ours, theirs = [True] * 60, [True] * 56 + [False] * 4
    assert difference(ours, theirs).low > 0
    assert compare(ours, theirs).verdict == "undecided"


@given(COSTS, st.floats(0.1, 3), st.integers(0, 5))
def test_ratio_of_proportional_costs_is_exact(costs: list[float], k: float, seed: int) -> None:
    """Paired: what makes a task long cancels out."""
    assert ratio([k * c for c in costs], costs, seed) == pytest.approx((k, k, k))


def test_ratio_is_of_sums() -> None:
    assert ratio([1, 10], [2, 10]).estimate == pytest.approx(11 / 12)


def test_ratio_interval_covers() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for i in range(100):
        theirs = rng.lognormal(3, 1, 60)
        ours = theirs * rng.uniform(0.5, 0.9, 60)
        _, low, high = ratio(list(ours), list(theirs), seed=i)
        covered += low <= 0.7 <= high
    assert covered >= 88


def test_deterministic_in_the_seed() -> None:
    a, b = list(np.linspace(1, 5, 23)), list(np.geomspace(2, 6, 23))
    assert ratio(a, b, 3) == ratio(a, b, 3)
    assert ratio(a, b, 3) != ratio(a, b, 4)


def test_intervals_contain_their_estimate() -> None:
    for k in range(11):
        share, low, high = accuracy([True] * k + [False] * (10 - k))
        assert 0 <= low <= share <= high <= 1
        assert low < high


def test_sign_test_by_hand() -> None:
    assert sign_test([True] * 3, [False] * 3) == pytest.approx(0.25)
    assert sign_test([True, False], [False, True]) == 1.0


@pytest.mark.parametrize(("ours", "theirs"), [([], []), ([1.0], [1.0, 2.0])])
def test_unpaired_results_are_refused(ours: list[float], theirs: list[float]) -> None:
    with pytest.raises(ValueError, match="same tasks"):
        difference(ours, theirs)
    with pytest.raises(ValueError, match="same tasks"):
        ratio(ours, theirs)


def test_a_free_denominator_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        ratio([1.0], [0.0])
