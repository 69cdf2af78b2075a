"""What a policy sees and what its verbs do, in plain Python and in the sandbox alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from conversations import Talk, opening

from akv_rsi.errors import ConfigError, PolicyCrash
from akv_rsi.policies.open import open_policy
from akv_rsi.policies.program import Program
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.types import Drop, Op, Refresh, Repos, Restore

HEAD = (
    "from akv_rsi.policies.dsl import Context, drop, identifiers, keep, overlap, refresh, repos,"
    " restore, tunable\n"
)

Run = Callable[..., tuple[Op, ...]]


@pytest.fixture(params=["plain", "sandbox"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Runs a policy's body once on a conversation; each way of running passes every test."""
    opened: list[Program] = []

    def decide(talk: Talk, *body: str, **tunables: int) -> tuple[Op, ...]:
        lines = "\n".join(f"    {line}" for line in body)
        source = f"{HEAD}\ndef policy(ctx: Context) -> None:\n{lines}\n"
        spec = PolicySpec("test", source=source, trusted=request.param == "plain")
        opened.append(open_policy(spec))
        return opened[-1].decide(talk.snapshot())

    yield decide
    for program in opened:
        program.close()


def fails(run: Run, talk: Talk, *body: str) -> str:
    with pytest.raises(PolicyCrash) as caught:
        run(talk, *body)
    return str(caught.value)


def checks(run: Run, talk: Talk, *conditions: str) -> None:
    """Passes if all conditions hold inside a policy."""
    for condition in conditions:
        ops = run(talk, "seg = ctx.segments", f"if {condition}:", "    drop(seg[1])")
        assert ops == (Drop(talk.visibility.length, ((10, 20),)),), condition


def three_turns() -> Talk:
    """system 0-10, user 10-20, then per turn a call of 5 and a result of 10 tokens."""
    talk = opening()
    for text in ("alpha", "beta", "gamma"):
        talk.call(text=f"open {text}")
        talk.result(text)
    return talk


def test_fields_of_the_context(run: Run) -> None:
    talk = three_turns()
    talk.apply([Drop(55, ((25, 35),)), Repos(55)])
    checks(
        run,
        talk,
        "ctx.turn == 3",
        "ctx.tokens == 65",
        "ctx.attended == 55",
        "ctx.position_span == 55",
        "ctx.reliable_span == 1000",
        "ctx.cost_so_far == 0",
        "ctx.budget == 1",
        "len(ctx.segments) == 8",
    )


def test_fields_of_a_segment(run: Run) -> None:
    talk = three_turns()
    talk.segments[5] = talk.segments[5].__class__(
        5, "tool_result", 1, 40, 50, "beta 7", "grep", "x", is_error=True, ephemeral=True
    )
    talk.apply([Drop(55, ((25, 35),))])
    checks(
        run,
        talk,
        'seg[5].kind == "tool_result" and seg[5].id == 5 and seg[5].tokens == 10',
        'seg[5].tool == "grep" and seg[5].text == "beta 7"',
        "seg[5].is_error and seg[5].ephemeral and not seg[5].pinned",
        "seg[0].pinned and not seg[0].is_error and seg[0].tool is None",
        "[s.age for s in seg] == [2, 2, 2, 2, 1, 1, 0, 0]",
        "[s.turn for s in seg] == [0, 0, 0, 0, 1, 1, 2, 2]",
        "[s.id for s in seg if s.dropped] == [3]",
        "seg[5].attention == 0.0" if talk.attention else "True",
    )


def test_age_is_zero_before_the_first_call(run: Run) -> None:
    talk = opening()
    assert run(talk, "for seg in ctx.segments:", "    if seg.age > 0:", "        drop(seg)") == ()


def test_a_partly_dropped_segment_is_not_dropped(run: Run) -> None:
    talk = three_turns()
    talk.apply([Drop(55, ((25, 30),))])
    checks(run, talk, "not seg[3].dropped")
    talk.apply([Drop(55, ((30, 35),))])
    checks(run, talk, "seg[3].dropped")


def test_superseded_by_the_next_answer_to_the_same_call(run: Run) -> None:
    talk = opening()
    for call, error in (("a", False), ("b", False), ("a", True), ("a", False), ("a", False)):
        talk.call()
        talk.result(call, is_error=error)
    checks(run, talk, "[s.superseded_by for s in seg[3::2]] == [9, None, None, 11, None]")


def test_unknown_arguments_supersede_nothing(run: Run) -> None:
    talk = opening()
    for _ in range(2):
        talk.call()
        talk.result("text", call=None)
    checks(run, talk, "seg[3].superseded_by is None")


def test_mentions_go_to_the_segment_that_introduced_a_rare_word(run: Run) -> None:
    talk = opening()
    talk.call(text="open app.py")
    talk.result("app.py: max_depth = 7312")  # 3
    talk.call("assistant", "note max_depth 7312")  # 4
    talk.result("saved")
    talk.call(text="put max_depth")  # 6
    talk.result("accepted")
    checks(
        run,
        talk,
        "seg[3].mentions == (2,)",
        "seg[4].mentions == (3,) and seg[6].mentions == (3,)",
        "seg[3].mentioned_later == 2 and seg[4].mentioned_later == 0",
        "seg[2].mentioned_later == 0",  # only the tool repeated app.py
        "[n.id for n in ctx.notes_about(seg[3])] == [4]",
    )


def test_a_common_word_mentions_nothing(run: Run) -> None:
    talk = opening()
    for _ in range(7):
        talk.call(text="poll build_17")
        talk.result("pending")
    checks(run, talk, "seg[2].mentioned_later == 4")


def test_notes_are_text_right_after_and_later_text_that_mentions(run: Run) -> None:
    talk = opening()
    talk.call(text="look")
    talk.result("port = 8093")  # 3
    talk.call("assistant", "noted")  # 4: right after
    talk.result("saved")
    talk.call("assistant", "well")  # 6: neither
    talk.call("assistant", "it was 8093")  # 7: mentions
    talk.call(text="use 8093")  # no text
    checks(run, talk, "[n.id for n in ctx.notes_about(seg[3])] == [4, 7]")
    talk.apply([Drop(talk.visibility.length, ((talk.segments[4].start, talk.segments[4].end),))])
    checks(run, talk, "[n.id for n in ctx.notes_about(seg[3])] == [7]")


def test_identifiers_and_overlap(run: Run) -> None:
    talk = opening()
    talk.call()
    talk.result("Open src/App.py: 42 is max_depth of it, 7")  # 3
    talk.call("assistant", "max_depth is 42")
    talk.call()
    checks(
        run,
        talk,
        'identifiers(seg[3]) == ("42", "max_depth", "open", "src/app.py")',
        "overlap(seg[3], seg[4]) == 0.5 and overlap(seg[4], seg[3]) == 1.0",
        "overlap(seg[2], seg[3]) == 0.0",
    )


def test_drop_of_a_segment_and_of_a_stretch(run: Run) -> None:
    talk = three_turns()
    assert run(talk, "drop(ctx.segments[3])") == (Drop(55, ((25, 35),)),)
    assert run(talk, "drop(ctx.segments[3][2:4])") == (Drop(55, ((27, 29),)),)
    assert run(talk, "drop(ctx.segments[3][-4:])") == (Drop(55, ((31, 35),)),)
    assert run(talk, "drop(ctx.segments[3][:-4])") == (Drop(55, ((25, 31),)),)
    assert run(talk, "drop(ctx.segments[3][4:2])") == ()
    assert run(talk, "drop(ctx.segments[3][50:90])") == ()
    assert "has no step" in fails(run, talk, "drop(ctx.segments[3][::2])")


def test_adjacent_drops_are_one_range(run: Run) -> None:
    talk = three_turns()
    ops = run(talk, "drop(ctx.segments[3])", "drop(ctx.segments[2])", "drop(ctx.segments[1][1:3])")
    assert ops == (Drop(55, ((11, 13), (20, 35))),)


def test_drop_of_the_dropped_is_no_operation(run: Run) -> None:
    talk = three_turns()
    talk.apply([Drop(55, ((25, 30),))])
    assert run(talk, "drop(ctx.segments[3])") == (Drop(55, ((30, 35),)),)
    talk.apply([Drop(55, ((30, 35),))])
    assert run(talk, "drop(ctx.segments[3])") == ()


@pytest.mark.parametrize("part", ["[6]", "[7]", "[7][0:1]", "[6][4:]"])
def test_drop_of_the_current_turn_is_refused(run: Run, part: str) -> None:
    message = fails(run, three_turns(), "x = 1", f"drop(ctx.segments{part})")
    assert message.startswith("line 5: drop of the current turn (segment ")


def test_before_the_first_call_everything_is_the_current_turn(run: Run) -> None:
    assert "drop of the current turn" in fails(run, opening(), "drop(ctx.segments[1])")


def test_drop_of_pinned_is_refused(run: Run) -> None:
    message = fails(run, three_turns(), "drop(ctx.segments[0])")
    assert message == "line 4: drop of the pinned segment 0 (system) (ValueError)"


def test_keep_cancels_a_drop_before_and_after(run: Run) -> None:
    talk = three_turns()
    assert run(talk, "drop(ctx.segments[3])", "keep(ctx.segments[3])") == ()
    assert run(talk, "keep(ctx.segments[3][:4])", "drop(ctx.segments[3])") == (
        Drop(55, ((29, 35),)),
    )


def test_restore(run: Run) -> None:
    talk = three_turns()
    talk.apply([Drop(55, ((25, 35),))])
    assert run(talk, "restore(ctx.segments[3])") == (Restore(55, ((25, 35),)),)
    assert run(talk, "restore(ctx.segments[2])") == ()
    assert run(talk, "restore(ctx.segments[3])", "drop(ctx.segments[3])") == ()
    assert run(talk, "drop(ctx.segments[1])", "restore(ctx.segments[1])") == ()


def test_restore_of_what_lost_its_place_needs_repos(run: Run) -> None:
    talk = three_turns()
    talk.apply([Drop(55, ((25, 35),)), Repos(55)])
    assert "call repos()" in fails(run, talk, "restore(ctx.segments[3])")
    both = run(talk, "restore(ctx.segments[3])", "repos()")
    assert both == (Restore(55, ((25, 35),)), Repos(55))


def test_repos_only_where_it_changes_something(run: Run) -> None:
    talk = three_turns()
    assert run(talk, "repos()") == ()
    assert run(talk, "repos()", "drop(ctx.segments[3])") == (Drop(55, ((25, 35),)), Repos(55))
    talk.apply([Drop(55, ((25, 35),))])
    assert run(talk, "repos()", "repos()") == (Repos(55),)


def test_refresh_only_where_it_changes_something(run: Run) -> None:
    talk = three_turns()
    assert run(talk, "refresh(ctx.segments[4])") == ()
    ops = run(talk, "drop(ctx.segments[3])", "for seg in ctx.segments:", "    refresh(seg)")
    assert ops == (Drop(55, ((25, 35),)), Refresh(55, ((35, 55),)))  # not 55-65: not computed


def test_a_policy_must_return_none(run: Run) -> None:
    assert "must return None" in fails(run, opening(), "return [ctx.segments[1]]")


def test_crashes_name_the_line(run: Run) -> None:
    assert fails(run, opening(), "x = 0", "", "y = 1 / x") == (
        "line 6: division by zero (ZeroDivisionError)"
    )


def test_verbs_outside_of_a_policy() -> None:
    from akv_rsi.policies.dsl import repos

    with pytest.raises(LookupError):
        repos()


def test_an_oracle_is_no_program() -> None:
    with pytest.raises(ConfigError, match="no program"):
        open_policy(PolicySpec("oracle", kind="oracle"))
