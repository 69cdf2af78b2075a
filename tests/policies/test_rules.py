"""The calls of verbs in a source: found, left alone, taken out."""

from akv_rsi.policies.lint import lint
from akv_rsi.policies.open import open_policy
from akv_rsi.policies.rules import alone, rules_of, without
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.types import Drop, Repos, Segment, Snapshot
from akv_rsi.visibility import Visibility

SOURCE = """from akv_rsi.policies.dsl import Context, drop, keep, repos


def policy(ctx: Context) -> None:
    for seg in ctx.segments:
        if seg.tool == "a":
            drop(seg)
        if seg.tool == "b":
            drop(seg)
        if seg.is_error:
            keep(seg)
    repos()
"""


def snapshot():
    segments = (
        Segment(0, "system", 0, 0, 4, "s", pinned=True),
        Segment(1, "tool_result", 0, 4, 8, "x", tool="a"),
        Segment(2, "tool_result", 0, 8, 12, "y", tool="b"),
        Segment(3, "tool_result", 0, 12, 16, "z", tool="a", is_error=True),
        Segment(4, "tool_call", 2, 16, 20, "go"),
    )
    return Snapshot("c", 3, segments, Visibility().append(20), 100)


def decide(source):
    with open_policy(PolicySpec("p", source=source, trusted=True)) as policy:
        return policy.decide(snapshot())


def test_rules_are_found_in_reading_order():
    rules = rules_of(SOURCE)
    assert [(rule.verb, rule.line) for rule in rules] == [
        ("drop", 7), ("drop", 9), ("keep", 11), ("repos", 12),
    ]  # fmt: skip
    assert rules[0].text == "drop(seg)"


def test_a_rule_alone_asks_for_its_own_part_and_others_still_hold():
    first, second, _, closing = rules_of(SOURCE)
    whole = decide(SOURCE)
    assert whole == (Drop(20, ((4, 12),)), Repos(20))
    assert decide(alone(SOURCE, first))[0] == Drop(20, ((4, 8),)), "the error is still kept"
    assert decide(alone(SOURCE, second))[0] == Drop(20, ((8, 12),))
    assert decide(alone(SOURCE, closing)) == whole


def test_without_a_rule_the_rest_decides_as_before():
    first, _, kept, closing = rules_of(SOURCE)
    assert decide(without(SOURCE, first)) == (Drop(20, ((8, 12),)), Repos(20))
    assert decide(without(SOURCE, kept))[0] == Drop(20, ((4, 16),))
    assert decide(without(SOURCE, closing)) == (Drop(20, ((4, 12),)),)


def test_what_is_left_is_still_a_policy():
    for rule in rules_of(SOURCE):
        lint(alone(SOURCE, rule))
        lint(without(SOURCE, rule))
