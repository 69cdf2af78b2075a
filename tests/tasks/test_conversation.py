"""The growing conversation: what is prompted, where ops happen, how edits change it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from toy import toy_format

from akv_rsi.engine.request import Completion
from akv_rsi.errors import GuardError, OpError, PolicyCrash
from akv_rsi.policies.editor import Edit
from akv_rsi.tasks.conversation import Conversation
from akv_rsi.tasks.cost import PRESETS, cost_of, usage_of
from akv_rsi.tasks.environment import Message, Observation
from akv_rsi.tasks.transcript import Transcript
from akv_rsi.types import Call, Drop, Refresh

CHAT = toy_format()
CLAUDE = PRESETS["claude"]


def tokens_of(text: str) -> list[int]:
    return CHAT.encode(Message("tool_call", text))[1:]


def completion(tokens: Sequence[int], finish: str = "stop") -> Completion:
    return Completion(tuple(tokens), finish, 0, 0, 0, 0, 0.0, 0.0)  # type: ignore[arg-type]


def said(text: str) -> Completion:
    return completion(tokens_of(text))


def result(text: str) -> Observation:
    return Observation((Message("tool_result", text, tool="look", call="red"),))


def opened() -> Conversation:
    conversation = Conversation(CHAT, Transcript("c", CLAUDE, reliable_span=100))
    conversation.open(Observation((Message("system", "you act"), Message("user", "look red"))))
    return conversation


def grown(turns: int = 3) -> Conversation:
    conversation = opened()
    for _ in range(turns):
        conversation.request()
        conversation.answer(said("look red"))
        conversation.observe(result("red is v1"))
    return conversation


def test_segments_tile_the_prompt_and_know_their_turn() -> None:
    conversation = grown(2)
    segments = conversation.transcript.segments
    assert [s.kind for s in segments] == [
        *("system", "user", "tool_call", "tool_result", "tool_call", "tool_result")
    ]
    assert [s.turn for s in segments] == [0, 0, 0, 0, 1, 1]
    assert [s.id for s in segments] == list(range(6))
    assert [s.pinned for s in segments] == [True, True, False, False, False, False]
    assert all(a.end == b.start for a, b in itertools.pairwise(segments))
    prompt = conversation.request().tokens
    whole = [t for s in segments for t in CHAT.encode(Message(s.kind, s.text))]
    assert list(prompt) == [*whole, *CHAT.prompt()]


def test_the_boundary_is_the_last_prompt_and_its_answer() -> None:
    conversation = opened()
    assert conversation.transcript.snapshot().boundary == 0
    prompt = len(conversation.request().tokens)
    conversation.answer(said("look red"))
    conversation.observe(result("red is v1"))
    snapshot = conversation.transcript.snapshot()
    assert snapshot.boundary == prompt + 3
    assert snapshot.segments[2].end == snapshot.boundary == snapshot.segments[3].start
    assert snapshot.turn == 1


def test_the_environment_says_what_the_answer_was() -> None:
    conversation = opened()
    conversation.request()
    assert conversation.answer(said("note red v1")) == "note red v1"
    conversation.observe(Observation((), action="assistant"))
    assert conversation.transcript.segments[-1].kind == "assistant"
    assert conversation.transcript.segments[-1].text == "note red v1"


def test_an_answer_cut_at_its_limit_gets_its_end_marker_behind_the_boundary() -> None:
    conversation = opened()
    conversation.request()
    conversation.answer(completion(tokens_of("look red")[:-1], "length"))
    conversation.observe(result("ok"))
    snapshot = conversation.transcript.snapshot()
    answer = snapshot.segments[2]
    assert answer.end == snapshot.boundary + 1
    assert conversation.request().tokens[answer.end - 1] in CHAT.stop


def test_ops_accumulate_and_are_checked() -> None:
    conversation = grown()
    segments = conversation.transcript.segments
    boundary = conversation.transcript.boundary
    first = Drop(boundary, ((segments[3].start, segments[3].end),))
    assert conversation.request((first,)).history.ops == (first,)
    conversation.answer(said("look red"))
    conversation.observe(result("red is v1"))
    late = conversation.transcript.boundary
    with pytest.raises(OpError, match="already dropped"):
        conversation.request((Drop(late, first.ranges),))
    with pytest.raises(GuardError):
        conversation.request((Drop(late, ((0, 3),)),))
    with pytest.raises(OpError, match="boundary"):
        conversation.request((Drop(boundary, ((segments[2].start, segments[2].end),)),))
    second = Refresh(late, ((segments[4].start, segments[4].end),))
    request = conversation.request((second,))
    assert request.history.ops == (first, second)
    assert request.pinned == ((0, 4), (4, 8))


def test_the_cost_so_far_is_the_cost_of_the_trajectory() -> None:
    conversation = grown()
    segments = conversation.transcript.segments
    drop = Drop(conversation.transcript.boundary, ((segments[3].start, segments[3].end),))
    conversation.request((drop,))
    conversation.answer(said("look red"))
    conversation.observe(result("ok"))
    trajectory = conversation.transcript.trajectory()
    assert conversation.transcript.usage == usage_of(trajectory, CLAUDE)
    assert conversation.transcript.snapshot().cost_so_far == cost_of(trajectory, CLAUDE)


def test_removed_segments_vanish_and_the_suffix_is_computed_again() -> None:
    conversation = grown()
    before = conversation.transcript.snapshot()
    conversation.edit(Edit(remove=(3,)))
    after = conversation.transcript.snapshot()
    assert [s.kind for s in after.segments] == [
        *("system", "user", "tool_call", "tool_call", "tool_result", "tool_call", "tool_result")
    ]
    assert after.conversation != before.conversation
    assert after.boundary == before.segments[3].start
    prompt = conversation.request().tokens
    conversation.answer(said("look red"))
    call = conversation.transcript.calls[-1]
    assert call == Call(len(prompt), before.segments[3].start, 3)
    usage = usage_of(conversation.transcript.trajectory(), CLAUDE)
    assert usage == conversation.transcript.usage


def test_summarised_segments_are_replaced_by_what_the_agent_wrote() -> None:
    conversation = grown()
    old = conversation.transcript.snapshot()
    edit = Edit(summarise=(2, 3))
    asked = conversation.summary_request(edit)
    kept = old.segments[3].end
    request = CHAT.encode(CHAT.summary_request())
    assert len(asked.tokens) == kept + len(request) + 1
    assert asked.max_new_tokens == CHAT.max_summary_tokens
    conversation.edit(edit, asked, said("note red v1"))
    segments = conversation.transcript.segments
    assert [s.kind for s in segments[:4]] == ["system", "user", "assistant", "tool_call"]
    assert segments[2].text == "note red v1"
    assert [s.id for s in segments] == list(range(len(segments)))
    assert conversation.transcript.calls[-1] == Call(len(asked.tokens), kept, 4, auxiliary=True)
    prompt = conversation.request().tokens
    whole = [t for s in segments for t in CHAT.encode(Message(s.kind, s.text))]
    assert list(prompt) == [*whole, *CHAT.prompt()]
    conversation.answer(said("look red"))
    assert conversation.transcript.usage == usage_of(conversation.transcript.trajectory(), CLAUDE)


@pytest.mark.parametrize(
    ("edit", "error"),
    [
        (Edit(remove=(0,)), GuardError),
        (Edit(summarise=(1,)), GuardError),
        (Edit(remove=(7,)), GuardError),
        (Edit(remove=(99,)), PolicyCrash),
        (Edit(remove=(-1,)), PolicyCrash),
        (Edit(), PolicyCrash),
    ],
)
def test_edits_that_break_a_guard_change_nothing(edit: Edit, error: type[Exception]) -> None:
    conversation = grown()
    before = conversation.transcript.snapshot()
    with pytest.raises(error):
        conversation.edit(edit)
    assert conversation.transcript.snapshot() == before


def test_without_a_system_message_the_first_message_is_the_sink() -> None:
    transcript = Transcript("c", CLAUDE, 100)
    transcript.open([Message("tool_result", "a"), Message("tool_result", "b")], [6, 5])
    assert transcript.pinned == ((0, 6),)
