"""Cache ops on the wire: what they become, what they do, and what is refused."""

from __future__ import annotations

import httpx2
import openai
import pytest
from serving import OPENING, Served, service, serving, turns

from akv_rsi.errors import AkvError, GuardError, OpError
from akv_rsi.server.service import Service
from akv_rsi.server.wire import ChatRequest
from akv_rsi.types import Drop, Refresh, Repos, Restore

# Of `turns`: system 0, user 1, then answer 2, tool 3, answer 4, tool 5, ...
CHAT = {"model": "reference", "temperature": 0, "max_tokens": 4}
STARTS = [0, 6, 11, 16, 22, 27, 33, 38, 44]


def ops(idle: Service, turn_count: int = 3, **fields: object) -> tuple:
    asked = ChatRequest.model_validate({"messages": turns(turn_count), **fields})
    return idle.jobs.chat(asked, "").request.history.ops


def test_messages_are_dropped_and_repositioned_where_akv_sglang_does(idle: Service) -> None:
    found = ops(idle, drop_message={"4": [3], "6": [2, 5]}, reposition=[6])
    after_4, after_6 = STARTS[5], STARTS[7]
    assert found == (
        Drop(after_4, ((STARTS[3], STARTS[4]),)),
        Drop(after_6, ((STARTS[2], STARTS[3]), (STARTS[5], STARTS[6]))),
        Repos(after_6),
    )


def test_cache_ops_take_messages_or_tokens(idle: Service) -> None:
    by_message = [
        {"op": "drop", "after": 4, "messages": [3]},
        {"op": "restore", "after": 6, "messages": [3]},
        {"op": "refresh", "after": 6, "messages": [4]},
        {"op": "repos", "after": 6},
    ]
    by_token = [
        {"op": "repos", "boundary": 38},
        {"op": "drop", "boundary": 27, "ranges": [[16, 22]]},
        {"op": "refresh", "boundary": 38, "ranges": [[22, 27]]},
        {"op": "restore", "boundary": 38, "ranges": [[16, 20], [20, 22]]},
    ]
    expected = (
        Drop(27, ((16, 22),)),
        Restore(38, ((16, 22),)),
        Repos(38),
        Refresh(38, ((22, 27),)),
    )
    assert ops(idle, cache_ops=by_message) == expected
    assert ops(idle, cache_ops=by_token) == expected


@pytest.mark.parametrize(
    ("fields", "error", "says"),
    [
        ({"drop_message": {"9": [3]}}, OpError, "message 9"),
        ({"drop_message": {"4": [5]}}, OpError, "past its boundary"),
        ({"drop_message": {"4": [3, 3]}}, OpError, "named twice"),
        ({"drop_message": {"4": [3], "6": [3]}}, OpError, "already dropped"),
        ({"drop_message": {"4": [0]}}, GuardError, "pinned"),
        ({"drop_message": {"4": [4]}}, GuardError, "current"),
        ({"cache_ops": [{"op": "drop", "boundary": 999, "ranges": [[20, 22]]}]}, OpError, "past"),
        ({"cache_ops": [{"op": "drop", "boundary": 27, "ranges": [[22, 20]]}]}, OpError, "rev"),
        ({"cache_ops": [{"op": "restore", "after": 4, "messages": [3]}]}, OpError, "already vis"),
        ({"cache_ops": [{"op": "refresh", "after": 4}]}, OpError, "needs ranges"),
        ({"cache_ops": [{"op": "drop", "messages": [3]}]}, OpError, "needs one of"),
        ({"cache_ops": [{"op": "repos", "after": 4, "messages": [3]}]}, OpError, "takes no"),
        ({"drop_rule": {"type": "text_drop"}}, AkvError, "needs start and end"),
        ({"drop_rule": {"type": "thinking_drop", "start": "x"}}, AkvError, "use text_drop"),
    ],
)
def test_a_faulty_op_is_told(idle: Service, fields: dict, error: type, says: str) -> None:
    with pytest.raises(error, match=says):
        ops(idle, **fields)


def test_a_rule_drops_all_but_the_latest_results_of_earlier_turns(idle: Service) -> None:
    rule = {"type": "message_drop", "role": "tool", "keep_last": 1}
    found = ops(idle, 4, drop_rule=rule)
    # Before the call that wrote answer 4 there was one result; from then on one goes a turn.
    assert found == (Drop(38, ((16, 22),)), Drop(49, ((27, 33),)))
    # The same conversation one turn earlier has the same ops up to there.
    assert ops(idle, 3, drop_rule=rule) == found[:1]
    everything = ops(idle, 3, drop_rule=rule | {"keep_last": 0})
    assert everything == (Drop(27, ((16, 22),)), Drop(38, ((27, 33),)))


def test_a_rule_yields_to_what_the_request_says_itself(idle: Service) -> None:
    rule = {"type": "message_drop", "role": "tool", "keep_last": 0}
    found = ops(idle, 3, drop_rule=rule, drop_message={"4": [3]})
    assert found == (Drop(27, ((16, 22),)), Drop(38, ((27, 33),)))


def test_marked_text_and_thinking_are_dropped_by_rule(idle: Service) -> None:
    messages = [
        *OPENING,
        {"role": "assistant", "content": "<think> note the key </think> open key"},
        {"role": "tool", "content": "ready [log] saved saved [/log] not"},
        {"role": "assistant", "content": "open key"},
        {"role": "tool", "content": "ready"},
    ]
    rules = [
        {"type": "thinking_drop", "keep_last": 0},
        {"type": "text_drop", "start": "[log]", "end": "[/log]", "keep_last": 0},
    ]
    asked = ChatRequest.model_validate({"messages": messages, "drop_rule": rules})
    job = idle.jobs.chat(asked, "")
    # "<assistant> <think> note the key </think> open key <end>" starts at 11
    assert job.request.history.ops[0].ranges == ((12, 17), (22, 26))


def test_ephemeral_text_is_located_to_the_token_without_its_tags(idle: Service) -> None:
    tagged = "ready <ephemeral_observation> saved 3 </ephemeral_observation> not"
    messages = [*OPENING, {"role": "tool", "content": tagged}]
    job = idle.jobs.chat(ChatRequest.model_validate({"messages": messages}), "")
    (mark,) = job.prompt.marks
    bare = idle.jobs.chat(
        ChatRequest.model_validate(
            {"messages": [*OPENING, {"role": "tool", "content": " saved 3 "}]}
        ),
        "",
    )
    inside = bare.request.tokens[12:14]
    assert job.request.tokens[mark.start : mark.end] == inside
    assert (mark.message, mark.start, mark.end) == (2, 13, 15)
    assert len(job.request.tokens) == 11 + 6 + 1


def test_usage_tells_what_the_ops_did(client: openai.OpenAI) -> None:
    messages = turns(3, "usage")
    plain = client.chat.completions.create(messages=messages, **CHAT).usage
    fields = {
        "drop_message": {"4": [3]},
        "cache_ops": [{"op": "refresh", "after": 6, "messages": [4]}],
        "reposition": [6],
    }
    usage = client.chat.completions.create(messages=messages, extra_body=fields, **CHAT).usage
    details = usage.prompt_tokens_details
    assert usage.prompt_tokens == plain.prompt_tokens
    assert details.drop_skipped_tokens == 6
    assert details.repos_tokens == usage.prompt_tokens - STARTS[4]
    assert details.refreshed_tokens == 5
    again = client.chat.completions.create(messages=messages, extra_body=fields, **CHAT).usage
    assert again.prompt_tokens_details.matched_exact == usage.prompt_tokens
    assert again.prompt_tokens_details.refreshed_tokens == 0
    restored = fields | {"cache_ops": [{"op": "restore", "after": 6, "messages": [3]}]}
    back = client.chat.completions.create(messages=messages, extra_body=restored, **CHAT).usage
    assert back.prompt_tokens_details.restored_tokens == 6
    assert back.prompt_tokens_details.drop_skipped_tokens == 0


def test_two_servers_come_to_the_same_state(plain: Served) -> None:
    fields = {"drop_message": {"4": [3], "8": [5]}, "reposition": [8]}
    asked = {"messages": turns(5, "twin"), "extra_body": fields} | CHAT
    for turn in range(1, 5):  # one of them has seen the conversation grow
        part = {"messages": asked["messages"][: 2 + 2 * turn]} | CHAT
        plain.client().chat.completions.create(**part)
    with serving(service()) as other:
        answers = [s.client().chat.completions.create(**asked) for s in (plain, other)]
        for served in (plain, other):
            served.balanced()
    contents = [a.choices[0].message.content for a in answers]
    assert contents[0] == contents[1]
    details = [a.usage.prompt_tokens_details for a in answers]
    assert details[0].drop_skipped_tokens == details[1].drop_skipped_tokens == 12
    assert details[0].cached_tokens > details[1].cached_tokens == 0
    histories = []
    for served, answer in zip((plain, other), answers, strict=False):
        session = answer.model_extra["akv"]["session"]
        found = served.service.sessions.get(session, "")
        histories.append((found.history, found.prompt.rendered.tokens))
    assert histories[0] == histories[1]


def test_an_op_at_fault_is_a_400_over_the_wire(plain: Served) -> None:
    body = {"model": "reference", "messages": turns(2), "drop_message": {"4": [0]}}
    answer = httpx2.post(f"{plain.url}/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_cache_op"
    assert "pinned" in answer.json()["error"]["message"]
