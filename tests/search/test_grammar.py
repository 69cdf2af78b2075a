"""The grammar says only what lint accepts, and surgery keeps what it does not change."""

import difflib
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from akv_rsi.errors import LintError
from akv_rsi.policies import library
from akv_rsi.policies.lint import lint
from akv_rsi.policies.sandbox import check_types
from akv_rsi.policies.tunables import tunables_of
from akv_rsi.search import edit
from akv_rsi.search.combine import cross
from akv_rsi.search.grammar import Grammar, Number, Vocabulary, render
from akv_rsi.search.operators import mutate, simplify
from akv_rsi.types import Segment, Trajectory

WORDS = Vocabulary(
    ("open", "grep", "build"),
    ("tool_result", "tool_call", "assistant"),
    frozenset({"is_error", "ephemeral", "noted", "superseded"}),
)
GRAMMAR = Grammar(WORDS)
SEEDS = st.integers(0, 2**32)
QUICK = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))

MINE = '''"""A policy of my own."""

from akv_rsi.policies.dsl import Context, drop, refresh, repos, tunable

# how long a result stays
KEEP = tunable("keep", 1, 16, default=6)   # turns


def policy(ctx: Context) -> None:
    # one pass, oldest first
    for s in ctx.segments:
        if (
            s.kind == "tool_result"  # only these
            and not s.dropped
            and s.age >= KEEP and not s.is_error
        ):
            drop(s)  # bye
            for note in ctx.notes_about(s):
                refresh(note)
    if ctx.position_span > ctx.reliable_span:
        repos()
'''


def program(seed):
    return render(GRAMMAR.program(Random(seed)))


@given(SEEDS)
@QUICK
def test_every_program_passes_lint_and_types(seed):
    source = program(seed)
    lint(source)
    check_types(source)
    assert max(map(len, source.splitlines())) <= 100
    for tunable in tunables_of(source):
        assert tunable.low <= tunable.default <= tunable.high


@given(SEEDS, st.integers(1, 4))
@QUICK
def test_every_line_of_descent_passes_lint_and_types(seed, steps):
    rng = Random(seed)
    source = rng.choice([program(seed), MINE])
    for _ in range(steps):
        operator = rng.choice((mutate, simplify, "cross"))
        if operator == "cross":
            child = cross(source, program(rng.random()), rng)
        else:
            child = operator(source, GRAMMAR, rng)
        if child is not None:
            lint(child)
            check_types(child)
            assert child != source
            assert edit.tidy(edit.parse(child)).code == child
            source = child


@pytest.mark.parametrize("name", library.PROGRAMS)
def test_built_in_policies_can_be_bred(name):
    source, made = library.spec(name).source, set()
    for seed in range(6):
        for child in (
            mutate(source, GRAMMAR, Random(seed)),
            simplify(source, GRAMMAR, Random(seed)),
            cross(source, program(seed), Random(seed)),
        ):
            if child is not None:
                lint(child)
                made.add(child)
    assert len(made) > 4 or name in ("full", "sinks_window")


def test_the_same_seed_draws_the_same_program():
    assert [program(i) for i in range(20)] == [program(i) for i in range(20)]
    assert len({program(i) for i in range(100)}) > 90


def test_no_rule_reaches_into_the_current_turn():
    """Dropping the current turn is an error, so every rule that drops bounds the age."""
    for seed in range(12):
        rng, source = Random(seed), program(seed)
        for _ in range(3):
            source = mutate(source, GRAMMAR, rng) or source
        for site in edit.sites(edit.parse(source)):
            if "drop" in edit.names(site.rule.body):
                assert f"{site.seg}.age" in edit.parse(source).code_for_node(site.rule.test)


def test_a_target_without_refresh_gets_none():
    grammar = Grammar(Vocabulary(("open",), ("tool_result",), frozenset(), frozenset({"drop"})))
    for seed in range(25):
        source = render(grammar.program(Random(seed)))
        assert "refresh" not in source
        assert "repos" not in source
        child = mutate(source, grammar, Random(seed))
        assert child is None or "refresh" not in child


def test_words_come_from_the_trajectories():
    def result(i, tool, call, size, **more):
        return Segment(i, "tool_result", 0, i * 100, i * 100 + size, "x", tool, call, **more)

    segments = (result(0, "a", "1", 5), result(1, "b", "1", 9), result(2, "a", "2", 2))
    words = Vocabulary.of([Trajectory("t", segments, ())])
    assert words.tools == ("b", "a")
    assert words.flags == frozenset()
    more = (*segments, result(3, "a", "1", 1, is_error=True))
    note = Segment(4, "assistant", 0, 400, 401, "x")
    assert Vocabulary.of([Trajectory("t", (*more, note), ())]).flags == {
        "is_error",
        "superseded",
        "noted",
    }


def test_mutation_keeps_formatting():
    """All lines but the changed ones are there, byte for byte and in order."""
    counted = 0
    for seed in range(30):
        child = mutate(MINE, GRAMMAR, Random(seed))
        if child is None:
            continue
        counted += 1
        changes = [
            line
            for line in difflib.ndiff(MINE.splitlines(), child.splitlines())
            if line.startswith(("+ ", "- "))
        ]
        assert len([c for c in changes if c.startswith("- ")]) <= 6, child
        assert '"""A policy of my own."""' in child
        assert "    # one pass, oldest first\n    for s in ctx.segments:" in child
        assert ("KEEP" in child) == ("# how long a result stays\nKEEP" in child)
        assert "drop(s)  # bye" in child
    assert counted > 20


def test_a_removed_rule_takes_its_constant_along():
    child = {simplify(MINE, GRAMMAR, Random(seed)) for seed in range(30)}
    assert any(c and "KEEP" not in c and "tunable" not in c for c in child)


def test_cross_renames_what_would_clash():
    donor = """from akv_rsi.policies.dsl import Context, drop, tunable

KEEP = tunable("keep", 2, 9, default=3)


def policy(context: Context) -> None:
    for segment in context.segments:
        if segment.tool == "grep" and segment.age >= KEEP:
            drop(segment)
"""
    child = cross(MINE, donor, Random(0))
    lint(child)
    assert 'KEEP_2 = tunable("keep_2", 2, 9, default=3)' in child
    assert 's.tool == "grep" and s.age >= KEEP_2' in child
    assert [t.name for t in tunables_of(child)] == ["keep", "keep_2"]
    assert cross(child, donor, Random(0)) != child


def test_cross_takes_only_what_stands_alone():
    donor = """from akv_rsi.policies.dsl import Context, drop


def policy(ctx: Context) -> None:
    limit = 3
    for seg in ctx.segments:
        if seg.age > limit:
            drop(seg)
"""
    assert cross(MINE, donor, Random(0)) is None


def test_numbers_are_declared_as_literals():
    assert Number("age", 1, 16, 4).declare("AGE_2") == 'AGE_2 = tunable("age_2", 1, 16, default=4)'


def test_broken_source_is_a_lint_error():
    with pytest.raises(LintError, match="line 1"):
        mutate("def policy(:\n", GRAMMAR, Random(0))
