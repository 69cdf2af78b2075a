"""The conformance suite that every built-in policy passes, and what each is for."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from conversations import Talk, opening, random_talk, random_turns, recorded
from hypothesis import given, settings
from hypothesis import strategies as st

from akv_rsi.errors import ConfigError
from akv_rsi.policies import library
from akv_rsi.policies.editor import Edit, editable
from akv_rsi.policies.open import open_policy
from akv_rsi.policies.parity import check_parity
from akv_rsi.policies.resident import current_turn_start
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.types import Drop, Op, Refresh, Repos, Snapshot

FOLDER = Path(library.__file__).parent


class PolicyConformance:
    """Inherit and set ``spec``: what holds of every program."""

    spec: PolicySpec

    @pytest.mark.parametrize("seed", range(8))
    def test_decisions_are_valid_and_spare_the_guarded(self, seed: int) -> None:
        talk, rng = random_talk(seed)
        with open_policy(self.spec) as policy:
            for snapshot in random_turns(talk, rng, 14):
                ops = policy.decide(snapshot)
                talk.apply(ops)  # raises when an op is invalid or drops what is pinned
                for op in ops:
                    assert not isinstance(op, Drop) or op.ranges[-1][1] <= current_turn_start(
                        snapshot
                    )

    def test_is_a_pure_function(self) -> None:
        with open_policy(self.spec) as policy:
            snapshots = recorded(5, policy=policy)
            forwards = [policy.decide(s) for s in snapshots]
        with open_policy(self.spec) as policy:
            backwards = [policy.decide(s) for s in reversed(snapshots)]
        assert forwards == backwards[::-1]

    def test_deciding_again_changes_nothing(self) -> None:
        talk, rng = random_talk(7)
        with open_policy(self.spec) as policy:
            for snapshot in random_turns(talk, rng, 10):
                talk.apply(policy.decide(snapshot))
                again = policy.decide(talk.snapshot())
                assert not any(isinstance(op, Drop) for op in again)
                talk.apply(again)

    def test_parity(self) -> None:
        with open_policy(self.spec) as policy:
            snapshots = [s for seed in range(3) for s in recorded(seed, policy=policy)]
        assert check_parity(self.spec, snapshots).decisions == len(snapshots)

    def test_file(self) -> None:
        lines = (FOLDER / f"{self.spec.name}.py").read_text().splitlines()
        assert len(lines) <= 40
        docstring = ast.get_docstring(ast.parse("\n".join(lines))) or ""
        assert "Source:" in docstring or self.spec.name == "full"
        assert "dropped" in docstring or "visible =" in docstring


def _conforming(name: str, **tunables: float) -> type:
    title = "Test" + "".join(part.title() for part in name.split("_"))
    return type(title, (PolicyConformance,), {"spec": library.spec(name, **tunables)})


TestFull = _conforming("full")
TestRollingDrop = _conforming("rolling_drop", keep=2)
TestRollingDropRepos = _conforming("rolling_drop_repos", keep=1)
TestRollingDropRefresh = _conforming("rolling_drop_refresh", keep=2)
TestSinksWindow = _conforming("sinks_window", window=60)
TestEphemeralTags = _conforming("ephemeral_tags")
TestSupersedeAware = _conforming("supersede_aware")


def test_every_program_is_under_conformance() -> None:
    tested = {v.spec.name for k, v in globals().items() if k.startswith("Test")}
    assert tested == set(library.PROGRAMS)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(library.PROGRAMS), st.integers(0, 10_000), st.data())
def test_any_tunables_decide_validly(name: str, seed: int, data: st.DataObject) -> None:
    values = {
        t.name: data.draw(st.integers(int(t.low), int(t.high))) for t in library.tunables(name)
    }
    talk, rng = random_talk(seed, reliable_span=rng_span(seed))
    with open_policy(library.spec(name, **values)) as policy:
        for snapshot in random_turns(talk, rng, 8):
            talk.apply(policy.decide(snapshot))


ARBITRARY = """
from akv_rsi.policies.dsl import Context, drop, keep, refresh, repos, restore, tunable

A = tunable("a", 1, 1000, default=1)
B = tunable("b", 1, 1000, default=1)
SPARE = tunable("spare", 0, 1, default=1)


def policy(ctx: Context) -> None:
    for seg in ctx.segments:
        dice = (seg.id * A + ctx.turn * B + A * B) % 11
        part = seg[dice % 3 : seg.tokens - dice % 4]
        if dice < 4 and (not SPARE or (seg.age >= 1 and not seg.pinned)):
            drop(seg if dice % 2 else part)
        elif dice == 4:
            keep(part)
        elif dice == 5:
            restore(part)
        elif dice < 8:
            refresh(seg)
    if (A + ctx.turn) % 3:
        repos()
"""


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 1000), st.integers(1, 1000), st.integers(0, 1), st.integers(0, 1000))
def test_any_decision_is_valid_or_refused_by_name(a: int, b: int, spare: int, seed: int) -> None:
    tunables = (("a", a), ("b", b), ("spare", spare))
    spec = PolicySpec("any", source=ARBITRARY, tunables=tunables, trusted=True)
    talk, rng = random_talk(seed)
    with open_policy(spec) as policy:
        for snapshot in random_turns(talk, rng, 10):
            (outcome,) = policy.decide_many([snapshot])
            if isinstance(outcome, tuple):
                talk.apply(outcome)
                continue
            known = ("call repos() with it", "drop of the current turn", "drop of the pinned")
            assert any(words in str(outcome) for words in known[: 1 if spare else 3]), outcome


def rng_span(seed: int) -> int:
    return 40 + seed % 400


def decided(name: str, talk: Talk, **tunables: float) -> tuple[Op, ...]:
    with open_policy(library.spec(name, **tunables)) as policy:
        return policy.decide(talk.snapshot())


def turns(*texts: str, note_after: int | None = None) -> Talk:
    """system 0-10, user 10-20, then per turn a call of 5 and a result of 10 tokens."""
    talk = opening()
    for number, text in enumerate(texts):
        talk.call("assistant" if number == note_after else "tool_call", f"about {text}")
        talk.result(text, ephemeral=text == "poll")
    return talk


def test_full_does_nothing() -> None:
    assert decided("full", turns(*"abcdef")) == ()


def test_rolling_drop_keeps_the_last_results() -> None:
    talk = turns(*"abcd")
    assert decided("rolling_drop", talk, keep=1) == (Drop(70, ((25, 35), (40, 50), (55, 65))),)
    assert decided("rolling_drop", talk, keep=3) == (Drop(70, ((25, 35),)),)
    assert decided("rolling_drop", talk, keep=4) == ()
    assert decided("rolling_drop_repos", talk, keep=3) == (Drop(70, ((25, 35),)), Repos(70))


def test_rolling_drop_refresh_recomputes_the_note() -> None:
    talk = turns("alpha", "beta", "gamma", note_after=1)
    assert decided("rolling_drop_refresh", talk, keep=2) == (
        Drop(55, ((25, 35),)),
        Refresh(55, ((35, 40),)),
    )
    talk.reliable_span = 50
    assert decided("rolling_drop_refresh", talk, keep=2) == (
        Drop(55, ((25, 35),)),
        Repos(55),
        Refresh(55, ((35, 40),)),
    )


def test_sinks_window_counts_tokens() -> None:
    talk = turns(*"abcd")  # 80 tokens
    assert decided("sinks_window", talk, window=32) == (Drop(70, ((10, 48),)), Repos(70))


def test_ephemeral_tags() -> None:
    talk = turns("a", "poll", "poll", "b")
    assert decided("ephemeral_tags", talk) == (Drop(70, ((40, 50), (55, 65))),)


def test_supersede_aware() -> None:
    talk = turns("a", "b", "a", "a")
    assert decided("supersede_aware", talk) == (Drop(70, ((25, 35), (55, 65))),)


def test_parallel_answers_to_one_call_are_no_error() -> None:
    talk = turns("a")
    talk.result("a")
    assert decided("supersede_aware", talk) == ()


def test_specs_and_errors() -> None:
    assert library.names() == (*library.PROGRAMS, *library.EDITORS)
    assert library.spec("trim", batch=3).kind == "editor"
    assert library.spec("rolling_drop", keep=3).id != library.spec("rolling_drop", keep=4).id
    for bad in (
        lambda: library.spec("x"),
        lambda: library.editor("full"),
        lambda: library.spec("full", keep=1),
        lambda: library.spec("rolling_drop", keep=0),
        lambda: library.spec("rolling_drop", keep=1.5),
        lambda: library.editor("trim", limit=1),
    ):
        with pytest.raises(ConfigError):
            bad()


def replay(name: str, talk: Talk, turns: int, **tunables: float) -> list[Edit | None]:
    """The edits of an editor while ``talk`` grows by a call of 5 and a result of 10 a turn."""
    editor, edits = library.editor(name, **tunables), []
    for _ in range(turns):
        snapshot = talk.snapshot()
        edits.append(edit := editor.edit(snapshot))
        if edit is not None:
            gone = {*edit.remove, *edit.summarise}
            assert gone <= {s.id for s in editable(snapshot)}
            _rewrite(talk, gone, summary=bool(edit.summarise))
        talk.call()
        talk.result()
    return edits


def _rewrite(talk: Talk, gone: set[int], summary: bool) -> None:
    """The text without ``gone``; a summary of 8 tokens stands where they began."""
    kept, talk.segments = talk.segments, []
    for segment in kept:
        if summary and segment.id == min(gone):
            talk.say("assistant", "summary", 8)
        if segment.id not in gone:
            start = talk.segments[-1].end if talk.segments else 0
            moved = replace(segment, id=len(talk.segments), start=start, end=start + segment.tokens)
            talk.segments.append(moved)
    talk.visibility = type(talk.visibility)().append(0)


@pytest.mark.parametrize("name", library.EDITORS)
def test_editors_do_not_edit_every_turn(name: str) -> None:
    edits = replay(name, opening(reliable_span=200), 60)
    times = [turn for turn, edit in enumerate(edits) if edit is not None]
    assert len(times) >= 3
    assert min(later - earlier for earlier, later in pairwise(times)) >= 4


def test_truncate_removes_whole_turns_down_to_its_target() -> None:
    edits = replay("truncate", opening(reliable_span=100), 7, limit=1.0, target=0.5)
    assert edits[:6] == [None] * 6
    # 110 tokens: the user message goes with turn 0, then whole turns until 50 are left.
    assert edits[6] == Edit(remove=(1, 2, 3, 4, 5, 6, 7, 8, 9))


def test_trim_waits_for_a_batch() -> None:
    edits = replay("trim", opening(), 5, keep=2, batch=2)
    assert edits == [None, None, None, None, Edit(remove=(3, 5))]


def test_summarise_spares_the_last_turns() -> None:
    edits = replay("summarise", opening(reliable_span=60), 4, limit=1.0, keep=1)
    assert edits == [None, None, None, Edit(summarise=(1, 2, 3, 4, 5))]


@pytest.mark.parametrize("name", library.EDITORS)
def test_editors_leave_a_conversation_that_is_all_current_alone(name: str) -> None:
    talk = opening(reliable_span=5)
    assert library.editor(name).edit(talk.snapshot()) is None
    talk.call()
    talk.result(tokens=500)
    edit = library.editor(name).edit(talk.snapshot())
    assert edit is None or set(_ids(edit)) <= {1}


def _ids(edit: Edit) -> Sequence[int]:
    return (*edit.remove, *edit.summarise)


def test_library_is_typed_as_a_policy() -> None:
    snapshot: Snapshot = opening().snapshot()
    with open_policy(library.spec("full")) as policy:
        assert policy.capabilities == frozenset()
        assert policy.name == "full"
        assert policy.decide(snapshot) == ()
