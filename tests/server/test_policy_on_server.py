"""A policy on the server, for clients that never heard of ops."""

from __future__ import annotations

import itertools

import httpx2
import pytest
from serving import OPENING, Served, service, serving, turns

from akv_rsi.errors import CapabilityError, ConfigError
from akv_rsi.policies import library
from akv_rsi.policies.executor import Limits
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.server.planner import Planner
from akv_rsi.server.segments import segments
from akv_rsi.server.service import Service
from akv_rsi.server.wire import ChatRequest
from akv_rsi.types import Drop, OpHistory
from akv_rsi.visibility import Visibility

CHAT = {"model": "reference", "temperature": 0, "max_tokens": 4}
LOOP = """from akv_rsi.policies.dsl import Context, drop

def policy(ctx: Context) -> None:
    if ctx.turn == 2:
        drop(ctx.segments[3])
    while ctx.turn > 2:
        pass
"""


def test_the_policy_drops_and_the_session_tells_why(rolling: Served) -> None:
    answer = rolling.client().chat.completions.create(messages=turns(4, "why"), **CHAT)
    assert answer.usage.prompt_tokens_details.drop_skipped_tokens > 0
    session = answer.model_extra["akv"]["session"]
    told = httpx2.get(f"{rolling.url}/v1/sessions/{session}").json()
    assert told["policy"] == "rolling_drop"
    drops = [op for op in told["ops"] if op["op"] == "drop"]
    assert [op["messages"] for op in drops] == [[3], [5], [7]][: len(drops)]
    source = library.spec("rolling_drop").source.splitlines()
    (line,) = drops[0]["source"]
    assert drops[0]["by"] == "policy"
    assert source[line["line"] - 1].strip() == line["text"] == "drop(seg)"
    rolling.balanced()


TWICE = """from akv_rsi.policies.dsl import Context, drop, repos

def policy(ctx: Context) -> None:
    for seg in ctx.segments:
        if seg.age > 1 and seg.kind == "tool_result":
            drop(seg)
        if seg.age > 2 and seg.kind == "assistant": drop(seg)
    if ctx.turn == 4:
        repos()
"""


def test_a_session_tells_the_lines_apart_where_a_verb_stands_twice() -> None:
    with serving(service(policy=PolicySpec("twice", source=TWICE))) as served:
        answer = served.client().chat.completions.create(messages=turns(4), **CHAT)
        session = answer.model_extra["akv"]["session"]
        told = httpx2.get(f"{served.url}/v1/sessions/{session}").json()
    results, answers = "drop(seg)", 'if seg.age > 2 and seg.kind == "assistant": drop(seg)'
    assert [op["messages"] for op in told["ops"] if "messages" in op] == [[3], [2, 5]]
    assert [op["source"] for op in told["ops"]] == [
        [{"line": 6, "text": results, "messages": [3]}],
        [
            {"line": 6, "text": results, "messages": [5]},
            {"line": 7, "text": answers, "messages": [2]},
        ],
        [{"line": 9, "text": "repos()", "messages": []}],
    ]


def test_ops_of_the_client_take_the_place_of_the_policy(rolling: Served) -> None:
    asked = {"messages": turns(4, "own"), "extra_body": {"drop_message": {"8": [3]}}}
    answer = rolling.client().chat.completions.create(**asked, **CHAT)
    session = rolling.service.sessions.get(answer.model_extra["akv"]["session"], "")
    assert [op.ranges for op in session.history] == [((16, 22),)]
    assert session.plan is None


def test_a_plan_is_the_same_from_memory_and_afresh(idle: Service) -> None:
    def planner() -> Planner:
        return Planner(library.spec("rolling_drop", keep=1), 448, Limits())

    def plan(by: Planner, count: int) -> tuple:
        asked = ChatRequest.model_validate({"messages": turns(count)})
        decided = by.plan("s", segments(idle.jobs.chat(asked, "").prompt)).decided
        history = OpHistory(tuple(op for group in decided.groups for op in group))
        assert decided.state.runs == Visibility.replay(decided.state.length, history).runs
        return decided.groups

    grown, fresh = planner(), planner()
    plans = [plan(grown, count) for count in range(1, 6)]
    assert plan(fresh, 5) == plans[-1]
    assert all(later[: len(earlier)] == earlier for earlier, later in itertools.pairwise(plans))
    assert sum(isinstance(op, Drop) for group in plans[-1] for op in group) >= 3
    grown.close()
    fresh.close()


def test_ephemeral_text_of_one_message_is_dropped_alone(idle: Service) -> None:
    planner = Planner(library.spec("ephemeral_tags", keep=1), 448, Limits())
    tagged = "ready <ephemeral_observation>saved 3</ephemeral_observation> not"
    messages = [*OPENING, {"role": "assistant", "content": "open"}]
    messages += [{"role": "tool", "content": tagged}]
    messages += [{"role": "assistant", "content": "open"}, {"role": "tool", "content": "ready"}]
    prompt = idle.jobs.chat(ChatRequest.model_validate({"messages": messages}), "").prompt
    found = segments(prompt)
    assert [s.ephemeral for s in found] == [False] * 4 + [True] + [False] * 3
    assert [s.text for s in found[3:6]] == ["ready ", "saved 3", " not"]
    (drop,) = planner.plan("s", found).history
    assert drop.ranges == ((prompt.marks[0].start, prompt.marks[0].end),)
    planner.close()


def test_a_policy_out_of_time_takes_no_part_and_the_answer_says_so() -> None:
    spec = PolicySpec("loop", source=LOOP)
    with serving(service(policy=spec, limits=Limits(steps=1000))) as served:
        early = served.client().chat.completions.create(messages=turns(2, "loop"), **CHAT)
        late = served.client().chat.completions.create(messages=turns(3, "loop"), **CHAT)
        metrics = httpx2.get(f"{served.url}/metrics").text
        session = late.model_extra["akv"]["session"]
        told = httpx2.get(f"{served.url}/v1/sessions/{session}").json()
    assert "policy_error" not in early.model_extra["akv"]
    assert "1,000 steps" in late.model_extra["akv"]["policy_error"]
    # What it decided while it worked stays.
    for answer in (early, late):
        assert answer.usage.prompt_tokens_details.drop_skipped_tokens == 6
    assert [failure["call"] for failure in told["policy_failures"]] == [3]
    assert "akv_policy_failures_total 1.0" in metrics


def test_a_policy_may_drop_what_follows_a_very_short_opening() -> None:
    source = library.spec("rolling_drop").source.replace("tool_result", "assistant")
    made = service(policy=PolicySpec("answers", source=source, tunables=(("keep", 1),)))
    messages = [{"role": "user", "content": "key"}, *turns(3)[2:]]  # three tokens, then an answer
    request = made.jobs.chat(ChatRequest.model_validate({"messages": messages}), "").request
    assert request.history.ops[0].ranges == ((3, 8),)
    Visibility.replay(len(request.tokens), request.history, request.pinned)
    made.jobs.planner.close()


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (library.spec("truncate"), ConfigError),
        (
            PolicySpec("cost", source=LOOP.replace("ctx.turn == 2", "ctx.cost_so_far > 2")),
            CapabilityError,
        ),
    ],
    ids=["editor", "cost"],
)
def test_a_policy_the_server_cannot_run_is_refused(spec: PolicySpec, error: type) -> None:
    with pytest.raises(error, match=spec.name):
        Planner(spec, 448, Limits())
