"""What is learned from evidence, in evidence whose lesson is known."""

from random import Random

import pytest

from akv_rsi.policies.lint import lint
from akv_rsi.policies.tunables import freeze
from akv_rsi.search.cure import economise, heed, protect
from akv_rsi.search.findings import Critique, Effort, Finding, Span, Waste, dearest, merged
from akv_rsi.search.grammar import Grammar, Vocabulary
from akv_rsi.search.learn import atoms_of, common
from akv_rsi.search.traits import Sample, Traits, add_up
from akv_rsi.tasks.episode import TaskRef

GRAMMAR = Grammar(Vocabulary(("view", "poll"), ("tool_result",), frozenset({"noted"})))
TASK = TaskRef("repo", 1, "train")
ROLLING = """from akv_rsi.policies.dsl import Context, drop, tunable

KEEP = tunable("keep", 1, 16, default=2)


def policy(ctx: Context) -> None:
    for seg in ctx.segments:
        if seg.kind == "tool_result" and seg.age >= KEEP:
            drop(seg)
"""
MINE = ROLLING.replace("for seg", "for s").replace("seg.", "s.").replace("(seg)", "(s)")
FULL = """from akv_rsi.policies.dsl import Context


def policy(ctx: Context) -> None:
    pass
"""


def traits(tool, age=2, mentioned=0, noted=False, is_error=False, tokens=24):
    return Traits("tool_result", tool, age, tokens, is_error, False, False, mentioned, noted)


def world():
    """Polls are never needed; views are, until the agent has mentioned them."""
    samples = []
    for age in (1, 2, 4, 8):
        samples.append(Sample(traits("poll", age), False, False, 60))
        for hidden in (False, True):
            samples.append(Sample(traits("view", age), hidden, True, 30))
            samples.append(Sample(traits("view", age, mentioned=1), hidden, False, 30))
    return tuple(samples)


def finding(cause="dropped", *spans):
    culprits = tuple(Span(i, "words", one) for i, one in enumerate(spans))
    return Finding(TASK, 3, "put a", "put b", cause, culprits)


def rows(samples, **fate):
    return [
        (s.traits, s.weight)
        for s in samples
        if all(getattr(s, name) == value for name, value in fate.items())
    ]


@pytest.mark.parametrize("seed", range(6))
def test_what_is_common_covers_the_one_and_not_the_other(seed):
    yes, no = rows(world(), needed=False), rows(world(), needed=True)
    conditions = common(yes, no, 10.0, Random(seed))
    assert conditions
    held = {atom.condition: atom.holds for atom in atoms_of([t for t, _ in (*yes, *no)])}
    wrong = [t for t, _ in no if all(held[c](t) for c in conditions)]
    right = [t for t, _ in yes if all(held[c](t) for c in conditions)]
    assert not wrong
    assert right


def test_nothing_is_common_to_what_cannot_be_told_apart():
    same = [(traits("view"), 1.0)]
    assert common(same, same, 10.0, Random(0)) == ()


@pytest.mark.parametrize("seed", range(4))
def test_waste_becomes_a_rule_that_drops_it(seed):
    evidence = Critique(samples=world())
    for source in (FULL, ROLLING):
        cured = economise(source, evidence, GRAMMAR, Random(seed))
        child = cured.source
        lint(child)
        assert cured.lesson.startswith("drop(seg) if ")
        assert child.count("drop(seg)") == source.count("drop(seg)") + 1
        assert 'seg.tool == "poll"' in child or "mentioned_later" in child


def test_the_first_rule_of_a_policy_keeps_clear_of_the_current_turn():
    child = economise(FULL, Critique(samples=world()), GRAMMAR, Random(0)).source
    assert "seg.age" in freeze(child, {})


def test_culprits_are_protected_by_what_they_have_in_common():
    culprits = [traits("view", age) for age in (2, 4, 8)]
    evidence = Critique((finding("dropped", *culprits),), samples=world())
    cured = protect(ROLLING, evidence, GRAMMAR, Random(1))
    child = cured.source
    lint(child)
    assert "keep(seg)" in child
    assert "import Context, drop, keep, tunable" in child
    assert "mentioned_later <" in child
    assert cured.lesson == "keep(seg) if seg.mentioned_later < 1"
    heeded = heed(MINE, cured.lesson)
    lint(heeded)
    assert "if not s.dropped and s.age > 0 and s.mentioned_later < 1:" in heeded
    assert heed(child, "keep(seg) if seg.mentioned_later < MENTIONS") is None, "it does so already"
    assert heed(ROLLING, "polls are noise") is None, "a sentence is no rule"
    assert protect(FULL, evidence, GRAMMAR, Random(1)) is None, "it drops nothing"


def test_other_causes_have_other_cures():
    closed = protect(ROLLING, Critique((finding("position"),)), GRAMMAR, Random(0)).source
    assert "repos()" in closed
    assert protect(closed, Critique((finding("position"),)), GRAMMAR, Random(0)) is None
    fresh = protect(ROLLING, Critique((finding("stale"),)), GRAMMAR, Random(0)).source
    assert "refresh(note)" in fresh
    assert protect(fresh, Critique((finding("stale"),)), GRAMMAR, Random(0)) is None
    for nothing in (Critique((finding("other"),)), Critique()):
        assert protect(ROLLING, nothing, GRAMMAR, Random(0)) is None
        assert economise(ROLLING, nothing, GRAMMAR, Random(0)) is None


def test_samples_add_up_by_what_a_policy_can_tell():
    ours = [Sample(traits("view", age), False, True, 5) for age in (8, 9, 11, 12)]
    assert [(s.traits.age, s.weight) for s in add_up(ours)] == [(8, 15), (12, 5)]


def test_evidence_of_several_jobs_is_one():
    span = Span(1, "w", traits("view"))
    parts = [
        Critique((finding(),), (Waste(TASK, span, 7),), world(), Effort(3, 100, 20, 9)),
        Critique((), (Waste(TASK, span, 70),), world(), Effort(1, 50, 10, 3), ("x: y",)),
    ]
    both = merged(parts)
    assert both.effort == Effort(4, 150, 30, 12)
    assert both.effort.share == 0.2
    assert [waste.reads for waste in both.waste] == [70, 7]
    assert sum(s.weight for s in both.samples) == 2 * sum(s.weight for s in world())
    assert (len(both.findings), both.skipped) == (1, ("x: y",))
    assert len(dearest([Waste(TASK, span, i) for i in range(20)])) == 8
