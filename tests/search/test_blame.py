"""The search for a culprit, in worlds where it is known."""

from hypothesis import given, settings
from hypothesis import strategies as st

from akv_rsi.search.blame import FIRST, Blame, Suspect, inquire
from akv_rsi.search.fork import Variant

SIZES = st.integers(1, 24)


def suspects(count):
    return [Suspect(i, ((10 * i, 10 * i + 5),)) for i in range(count)]


def solve(count, cures, **also):
    """The blame in a world where ``cures`` says which restored ids make the call right."""
    inquiry = inquire(suspects(count))
    batch, asked = next(inquiry), 0
    try:
        while True:
            asked += len(batch)
            batch = inquiry.send([right(variant, cures, **also) for variant in batch])
    except StopIteration as stop:
        return stop.value, asked


def right(variant, cures, position=False, stale=False, fluke=False):
    restored = frozenset(start // 10 for start, _ in variant.restored)
    if variant == Variant():
        return fluke
    return cures(restored) or (position and variant.repos) or (stale and variant.refresh)


@given(SIZES, st.data())
@settings(max_examples=60, deadline=None)
def test_one_culprit_is_found(count, data):
    guilty = data.draw(st.integers(0, count - 1))
    blame, asked = solve(count, lambda restored: guilty in restored)
    assert blame.cause == "dropped"
    assert blame.culprits == (guilty,)
    assert blame.others == ()
    assert guilty not in blame.innocent
    assert asked <= count + 3
    if guilty < FIRST:
        assert asked <= FIRST + 3


@given(st.integers(2, 24), st.data())
@settings(max_examples=60, deadline=None)
def test_a_group_of_which_none_can_be_spared_is_found(count, data):
    guilty = data.draw(st.sets(st.integers(0, count - 1), min_size=2, max_size=4))
    blame, _ = solve(count, lambda restored: guilty <= restored)
    assert blame.cause == "dropped"
    assert set(blame.culprits) == guilty
    assert set(blame.innocent) == set(range(count))


@given(st.integers(8, 24), st.data())
@settings(max_examples=60, deadline=None)
def test_what_is_found_cures_where_too_much_does_harm(count, data):
    """Restoring everything leaves the reliable span; a half of it does not."""
    guilty = data.draw(st.integers(0, count - 2))
    limit = -(-count // 2)

    def cures(restored):
        return {guilty, guilty + 1} <= restored and len(restored) <= limit

    blame, _ = solve(count, cures)
    if blame.cause == "dropped":
        assert cures(frozenset(blame.culprits))
        assert len(blame.culprits) == 2


def test_each_that_would_have_done_is_told():
    blame, _ = solve(5, lambda restored: restored & {1, 3})
    assert (blame.culprits, blame.others, blame.innocent) == ((1,), (3,), (0, 2, 4))


def test_causes_that_are_no_loss_are_told_apart():
    def never(restored):
        return False

    assert solve(4, never, position=True)[0] == Blame("position")
    assert solve(4, never, stale=True)[0].cause == "stale"
    assert solve(4, never, fluke=True)[0] == Blame("unrepeatable")
    blame, asked = solve(4, never)
    assert (blame.cause, blame.innocent) == ("other", (0, 1, 2, 3))
    assert asked < 20
    assert solve(0, never)[0] == Blame("other")


def test_closing_the_gaps_is_not_taken_for_a_restored_span():
    """A restore that brings a repos along would be credited with what the repos does."""
    assert solve(4, lambda restored: 2 in restored, position=True)[0] == Blame("position")
