"""One small conversation, written in every format that a reader knows.

system (where the format has one), tools, user "alpha-task"
call 0: says "beta-say", calls `look` with {"at": "gamma-args"}; result "delta-result"
call 1: calls `look` twice, "eps-one" and "eps-two"; results "zeta-one", "zeta-two" (an error)
call 2: says "eta-done"
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

LONG = "delta-result " + "lorem ipsum dolor " * 20
USAGE = [(1000, 0, 40), (1150, 1000, 60), (1300, 1150, 20)]
"""Prompt, cached and output tokens of the three calls."""


@dataclass(frozen=True)
class Case:
    """A format's rendering. ``has`` are the marks it keeps; ``parallel`` that it can tell them."""

    reader: str
    name: str
    text: str
    has: frozenset[str] = frozenset({"system", "tools"})
    calls: int = 3
    usage: bool = False
    parallel: bool = True
    flags: frozenset[str] = frozenset()
    extra: dict[str, Any] = field(default_factory=dict)


def lines(*values: Any) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def args(text: str) -> dict[str, str]:
    return {"at": text}


def chat_call(number: str, text: str) -> dict[str, Any]:
    function = {"name": "look", "arguments": json.dumps(args(text))}
    return {"id": number, "type": "function", "function": function}


TOOLS = [{"type": "function", "function": {"name": "look", "description": "theta-tools"}}]


def chat_messages() -> list[dict[str, Any]]:
    return [
        {"role": "system", "content": "iota-system"},
        {"role": "user", "content": "alpha-task"},
        {"role": "assistant", "content": "beta-say", "tool_calls": [chat_call("c1", "gamma-args")]},
        {"role": "tool", "tool_call_id": "c1", "name": "look", "content": LONG},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [chat_call("c2", "eps-one"), chat_call("c3", "eps-two")],
        },
        {"role": "tool", "tool_call_id": "c2", "name": "look", "content": "zeta-one"},
        {"role": "tool", "tool_call_id": "c3", "name": "look", "content": "zeta-two"},
        {"role": "assistant", "content": "eta-done"},
    ]


def openai_chat() -> Case:
    body = json.dumps({"tools": TOOLS, "messages": chat_messages()})
    return Case("openai_chat", "chat.json", body)


def openai_chat_lines() -> Case:
    return Case("openai_chat", "chat.jsonl", lines({"messages": chat_messages(), "tools": TOOLS}))


def openai_chat_list() -> Case:
    body = json.dumps(chat_messages(), indent=1)
    return Case("openai_chat", "list.json", body, frozenset({"system"}))


def taubench() -> Case:
    trial = {"task_id": 4, "reward": 1.0, "info": {"cost": 1}, "traj": chat_messages(), "trial": 0}
    return Case("openai_chat_taubench", "tau.json", json.dumps([trial]), frozenset({"system"}))


def agentbench() -> Case:
    rounds = [
        {"round_number": k, "prompt_tokens": p, "output_tokens": o}
        for k, (p, _, o) in enumerate(USAGE)
    ]
    trace = {"task_id": "t", "messages": chat_messages(), "steps": [{"step": 0}], "rounds": rounds}
    body = json.dumps(
        {"benchmark": "b", "domain": "d", "task_id": "t", "trace": trace, "error": None}
    )
    return Case("general_agentbench", "gab.json", body, frozenset({"system"}), usage=True)


def sweagent() -> Case:
    history = [{**message, "agent": "main"} for message in chat_messages()]
    for message in history:
        if "tool_call_id" in message:
            message["tool_call_ids"] = [message.pop("tool_call_id")]
    steps = [{"action": "look", "observation": "x" * 99, "thought": "t"}]
    info = {"model_stats": {"tokens_sent": 3450, "tokens_received": 120, "api_calls": 3}}
    body = json.dumps({"trajectory": steps, "history": history, "info": info}, indent=2)
    return Case("sweagent", "one.traj", body, frozenset({"system"}))


def sweagent_text() -> Case:
    history = [
        {"role": "system", "content": "iota-system", "agent": "primary"},
        {"role": "user", "content": "demo", "agent": "primary", "is_demo": True},
        {"role": "user", "content": "alpha-task", "agent": "primary"},
        text_step("beta-say", "look gamma-args"),
        {"role": "user", "content": LONG, "agent": "primary"},
        text_step("", "look eps-one"),
        {"role": "user", "content": "zeta-one", "agent": "primary"},
        {
            "role": "assistant",
            "content": "eta-done",
            "thought": "eta-done",
            "action": "",
            "agent": "primary",
        },
    ]
    body = json.dumps({"environment": "e", "trajectory": [], "history": history, "info": {}})
    flags = frozenset({"demonstration_in_prompt"})
    return Case("sweagent", "text.traj", body, frozenset({"system"}), parallel=False, flags=flags)


def text_step(thought: str, action: str) -> dict[str, Any]:
    content = f"{thought}\n```\n{action}\n```"
    return {
        "role": "assistant",
        "content": content,
        "thought": thought,
        "action": action,
        "agent": "primary",
    }


def openai_usage(number: int) -> dict[str, Any]:
    prompt, cached, output = USAGE[number]
    details = {"cached_tokens": cached}
    return {"prompt_tokens": prompt, "prompt_tokens_details": details, "completion_tokens": output}


def mini_answer(number: int, text: str) -> dict[str, Any]:
    message = {"content": text, "reasoning": "kappa-hidden"}
    response = {
        "id": f"r{number}",
        "created": 100 + number,
        "model": "m",
        "usage": openai_usage(number),
    }
    response["choices"] = [{"message": message}]
    return {"role": "assistant", "content": text, "extra": {"response": response}}


def mini_sweagent() -> Case:
    messages = [
        {"role": "system", "content": "iota-system"},
        {"role": "user", "content": "alpha-task"},
        mini_answer(0, "beta-say\n```bash\nlook gamma-args\n```"),
        {"role": "user", "content": f"<returncode>0</returncode>\n<output>\n{LONG}\n</output>"},
        mini_answer(1, "```bash\nlook eps-one\n```"),
        {"role": "user", "content": "<returncode>1</returncode>\n<output>\nzeta-one\n</output>"},
        mini_answer(2, "eta-done"),
    ]
    body = {
        "info": {"mini_version": "1"},
        "messages": messages,
        "trajectory_format": "mini-swe-agent-1",
    }
    flags = frozenset({"reasoning_stored_but_not_resent"})
    return Case(
        "mini_swe_agent", "m.traj.json", json.dumps(body, indent=2), frozenset({"system"}),
        usage=True, parallel=False, flags=flags,
    )  # fmt: skip


def oh_action(number: int, call: int, name: str, text: str, thought: str = "") -> dict[str, Any]:
    calls = [chat_call(f"c{number}", text)]
    response = {"id": f"gen{call}", "model": "m", "usage": openai_usage(call)}
    response["choices"] = [{"message": {"tool_calls": calls}}]
    meta = {"function_name": "look", "tool_call_id": f"c{number}", "model_response": response}
    return {
        "id": number, "source": "agent", "action": name, "timestamp": f"2026-01-01T00:00:0{call}",
        "args": {"command": text, "thought": thought}, "tool_call_metadata": meta,
    }  # fmt: skip


def oh_result(number: int, cause: int, text: str, **more: Any) -> dict[str, Any]:
    meta = {"function_name": "look", "tool_call_id": f"c{cause}"}
    return {
        "id": number, "source": "agent", "observation": "run", "content": text, "cause": cause,
        "tool_call_metadata": meta, "extras": {}, **more,
    }  # fmt: skip


def openhands_events() -> list[dict[str, Any]]:
    return [
        {
            "id": 0,
            "source": "agent",
            "action": "system",
            "args": {"content": "iota-system", "tools": TOOLS},
        },
        {"id": 1, "source": "user", "action": "message", "args": {"content": "alpha-task"}},
        {"id": 2, "source": "user", "action": "recall", "args": {"query": "alpha"}, "message": "x"},
        oh_action(3, 0, "run", "gamma-args", "beta-say"),
        oh_result(4, 3, LONG),
        oh_action(5, 1, "run", "eps-one"),
        oh_action(6, 1, "run", "eps-two"),
        oh_result(7, 5, "zeta-one"),
        oh_result(8, 6, "zeta-two", success=False),
        {**oh_action(9, 2, "message", ""), "args": {"content": "eta-done"}},
    ]


def openhands() -> Case:
    row = {"instance_id": "i", "history": openhands_events(), "metrics": {}}
    return Case("openhands", "output.jsonl", lines(row), usage=True)


def openhands_list() -> Case:
    return Case("openhands", "events.json", json.dumps(openhands_events(), indent=1), usage=True)


def cc_line(kind: str, content: Any, number: int = -1, **more: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": kind, "content": content}
    if number >= 0:
        prompt, cached, output = USAGE[number]
        usage = {
            "input_tokens": 3, "cache_creation_input_tokens": prompt - cached - 3,
            "cache_read_input_tokens": cached, "output_tokens": output,
            "cache_creation": {"ephemeral_5m_input_tokens": prompt - cached - 3},
        }  # fmt: skip
        message |= {"id": f"msg_{number}", "model": "claude-x", "usage": usage}
    time = f"2026-01-01T00:00:{10 + max(number, 0):02d}.000Z"
    base = {"sessionId": "s", "uuid": f"u{id(message)}", "parentUuid": None, "timestamp": time}
    return {**base, "type": kind, "isSidechain": False, "message": message, **more}


def use(number: str, text: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": number, "name": "look", "input": args(text)}


def result(number: str, text: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": number, "content": text, **more}


def claude_code() -> Case:
    """One response over several lines, mixed with results, its usage repeated."""
    body = lines(
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
        cc_line("user", "alpha-task"),
        cc_line("assistant", [{"type": "text", "text": "beta-say"}], 0),
        cc_line("assistant", [use("c1", "gamma-args")], 0),
        {"type": "progress", "sessionId": "s", "uuid": "p", "data": {"output": "noise " * 9}},
        cc_line("user", [result("c1", LONG)], toolUseResult={"stdout": LONG}),
        cc_line("assistant", [use("c2", "eps-one")], 1),
        cc_line("user", [result("c2", "zeta-one")]),
        cc_line("assistant", [use("c3", "eps-two")], 1),
        cc_line("user", [result("c3", [{"type": "text", "text": "zeta-two"}], is_error=True)]),
        cc_line("assistant", [{"type": "text", "text": "eta-done"}], 2),
    )
    return Case("claude_code", "session.jsonl", body, frozenset(), usage=True)


def codex_line(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": "2026-01-01T00:00:00Z", "type": kind, "payload": payload}


def codex_call(number: str, text: str) -> dict[str, Any]:
    arguments = json.dumps(args(text))
    return codex_line(
        "response_item", type="function_call", name="look", arguments=arguments, call_id=number
    )


def codex_result(number: str, text: str) -> dict[str, Any]:
    return codex_line("response_item", type="function_call_output", call_id=number, output=text)


def codex_count(number: int) -> dict[str, Any]:
    prompt, cached, output = USAGE[number]
    last = {"input_tokens": prompt, "cached_input_tokens": cached, "output_tokens": output}
    total = {"input_tokens": sum(u[0] for u in USAGE[: number + 1])}
    info = {"total_token_usage": total, "last_token_usage": last}
    return codex_line("event_msg", type="token_count", info=info)


def codex_text(role: str, kind: str, text: str) -> dict[str, Any]:
    return codex_line(
        "response_item", type="message", role=role, content=[{"type": kind, "text": text}]
    )


def codex() -> Case:
    """Usage comes before the items of its call, and again after them."""
    body = lines(
        codex_line("session_meta", id="s", instructions="iota-system"),
        codex_text("user", "input_text", "alpha-task"),
        codex_line("event_msg", type="user_message", message="alpha-task"),
        codex_line("turn_context", model="gpt-x"),
        codex_count(0),
        codex_text("assistant", "output_text", "beta-say"),
        codex_call("c1", "gamma-args"),
        codex_result("c1", LONG),
        codex_count(0),
        codex_count(1),
        codex_call("c2", "eps-one"),
        codex_call("c3", "eps-two"),
        codex_result("c2", "zeta-one"),
        codex_result("c3", "zeta-two"),
        codex_count(1),
        codex_text("assistant", "output_text", "eta-done"),
        codex_count(2),
    )
    return Case("codex", "rollout.jsonl", body, frozenset({"system"}), usage=True)


def openai_responses() -> Case:
    def item(kind: str, **more: Any) -> dict[str, Any]:
        return {"type": kind, **more}

    def call(number: str, text: str) -> dict[str, Any]:
        return item("function_call", name="look", arguments=json.dumps(args(text)), call_id=number)

    request = {
        "input": [
            {"role": "system", "content": "iota-system"},
            {"role": "user", "content": "alpha-task"},
        ],
        "tools": TOOLS,
    }
    output = [
        item("message", role="assistant", content=[{"type": "output_text", "text": "beta-say"}]),
        call("c1", "gamma-args"),
        item("function_call_output", call_id="c1", output=LONG),
        call("c2", "eps-one"),
        call("c3", "eps-two"),
        item("function_call_output", call_id="c2", output="zeta-one"),
        item("function_call_output", call_id="c3", output="zeta-two"),
        item("message", role="assistant", content=[{"type": "output_text", "text": "eta-done"}]),
    ]
    usage = {"input_tokens": 420, "output_tokens": 120}
    row = {"responses_create_params": request, "response": {"output": output, "usage": usage}}
    return Case("openai_responses", "rollouts.jsonl", lines(row))


def anthropic_messages() -> Case:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "alpha-task"}]},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "beta-say"}, use("c1", "gamma-args")],
        },
        {"role": "user", "content": [result("c1", LONG)]},
        {"role": "assistant", "content": [use("c2", "eps-one"), use("c3", "eps-two")]},
        {
            "role": "user",
            "content": [result("c2", "zeta-one"), result("c3", "zeta-two", is_error=True)],
        },
        {"role": "assistant", "content": "eta-done"},
    ]
    body = {"model": "m", "system": "iota-system", "tools": TOOLS, "messages": messages}
    return Case("anthropic_messages", "messages.json", json.dumps(body))


def aider() -> Case:
    body = f"""
# aider chat started at 2026-01-01 00:00:00

> Aider v0.99
> Git repo: .git with 3 files

#### alpha-task

beta-say
```python
<<<<<<< SEARCH
gamma-args
=======
x
>>>>>>> REPLACE
```

> Tokens: 1,000 sent, 40 received. Cost: $0.01 request, $0.01 session.
> Applied edit to app.py
> {LONG}

#### go on
#### /diff

zeta-one

> Tokens: 1.1k sent, 60 received. Cost: $0.01 request, $0.02 session.

eta-done

> Tokens: 1.3k sent, 20 received.
"""
    flags = frozenset({"files_and_repo_map_missing"})
    return Case("aider", "history.md", body, frozenset(), usage=True, parallel=False, flags=flags)


def gemini_cli() -> Case:
    def call(number: str, text: str, output: str, status: str = "success") -> dict[str, Any]:
        response = {"functionResponse": {"id": number, "response": {"output": output}}}
        return {
            "id": number, "name": "look", "args": args(text), "status": status,
            "result": [response], "resultDisplay": "shown",
        }  # fmt: skip

    def answer(number: int, text: str, *calls: dict[str, Any]) -> dict[str, Any]:
        prompt, cached, output = USAGE[number]
        tokens = {"input": prompt, "cached": cached, "output": output, "thoughts": 0, "total": 1}
        return {
            "id": f"g{number}", "type": "gemini", "content": text, "tokens": tokens, "model": "m",
            "timestamp": "2026-01-01T00:00:00Z", "toolCalls": list(calls),
            "thoughts": [{"subject": "kappa", "description": "hidden"}],
        }  # fmt: skip

    messages = [
        {"id": "u", "type": "user", "content": "alpha-task"},
        answer(0, "beta-say", call("c1", "gamma-args", LONG)),
        answer(
            1, "", call("c2", "eps-one", "zeta-one"), call("c3", "eps-two", "zeta-two", "error")
        ),
        {"id": "i", "type": "info", "content": "notice"},
        answer(2, "eta-done"),
    ]
    body = {"messages": messages, "projectHash": "h", "sessionId": "s"}
    return Case("gemini_cli", "session.json", json.dumps(body, indent=2), frozenset(), usage=True)


def kimi_cli() -> Case:
    def event(kind: str, **more: Any) -> dict[str, Any]:
        value = {"type": kind, **more}
        return {"type": "context.append_loop_event", "event": value, "time": 1784950605097}

    def call(number: str, text: str) -> dict[str, Any]:
        return event("tool.call", toolCallId=number, name="look", args=args(text))

    def answer(number: str, text: str, **more: Any) -> dict[str, Any]:
        return event("tool.result", toolCallId=number, result={"output": text, **more})

    def end(number: int) -> dict[str, Any]:
        prompt, cached, output = USAGE[number]
        usage = {"inputOther": prompt - cached, "inputCacheRead": cached, "output": output}
        return event("step.end", uuid=f"s{number}", usage=usage)

    request = {"type": "llm.request", "turnStep": "0.1", "time": 1784950605100}
    user = {"role": "user", "content": [{"type": "text", "text": "alpha-task"}]}
    body = lines(
        {"type": "metadata", "protocol_version": "1.4"},
        {"type": "config.update", "systemPrompt": "iota-system"},
        {"type": "context.append_message", "message": user},
        event("step.begin", uuid="s0"),
        {"type": "llm.tools_snapshot", "tools": TOOLS},
        request,
        {**request, "attempt": "2/10"},
        event("content.part", part={"type": "text", "text": "beta-say"}),
        call("c1", "gamma-args"),
        end(0),
        answer("c1", LONG),
        event("step.begin", uuid="s1"),
        call("c2", "eps-one"),
        call("c3", "eps-two"),
        answer("c2", "zeta-one"),
        answer("c3", "zeta-two", isError=True),
        end(1),
        {"type": "profile.bind", "systemPrompt": "iota-system"},
        event("step.begin", uuid="s2"),
        event("content.part", part={"type": "text", "text": "eta-done"}),
        end(2),
    )
    return Case("kimi_cli", "wire.jsonl", body, usage=True)


def otel_parts(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


def otel_span(number: int, prompt: list[Any], answer: list[Any]) -> dict[str, Any]:
    tokens, cached, output = USAGE[number]
    values = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.input.messages": json.dumps(prompt),
        "gen_ai.output.messages": json.dumps(answer),
        "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "iota-system"}]),
        "gen_ai.tool.definitions": json.dumps(TOOLS),
    }
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]
    for key, amount in (("input", tokens), ("output", output), ("cache_read.input", cached)):
        attributes.append({"key": f"gen_ai.usage.{key}_tokens", "value": {"intValue": str(amount)}})
    start = str(1_751_247_501_952_174_000 + number * 10**9)
    return {
        "traceId": "t",
        "spanId": str(number),
        "name": "chat m",
        "startTimeUnixNano": start,
        "attributes": attributes,
    }


def otel() -> Case:
    def call(number: str, text: str) -> dict[str, Any]:
        return {"type": "tool_call", "id": number, "name": "look", "arguments": args(text)}

    def answered(number: str, text: str) -> dict[str, Any]:
        return {"type": "tool_call_response", "id": number, "response": text}

    def text(value: str) -> dict[str, Any]:
        return {"type": "text", "content": value}

    first = [otel_parts("user", text("alpha-task"))]
    said = [otel_parts("assistant", text("beta-say"), call("c1", "gamma-args"))]
    second = [*first, *said, otel_parts("tool", answered("c1", LONG))]
    again = [otel_parts("assistant", call("c2", "eps-one"), call("c3", "eps-two"))]
    results = otel_parts("tool", answered("c2", "zeta-one"), answered("c3", "zeta-two"))
    done = [{**otel_parts("assistant", text("eta-done")), "finish_reason": "stop"}]
    spans = [
        otel_span(1, second, again),
        otel_span(0, first, said),
        otel_span(2, [*second, *again, results], done),
        {"name": "execute_tool look", "traceId": "t", "attributes": []},
    ]
    body = {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": spans}]}]}
    return Case("otel_genai", "otlp.json", json.dumps(body), usage=True)


CASES: dict[str, Callable[[], Case]] = {
    made.__name__: made
    for made in (
        openai_chat, openai_chat_lines, openai_chat_list, taubench, agentbench, sweagent,
        sweagent_text, mini_sweagent, openhands, openhands_list, claude_code, codex,
        openai_responses, anthropic_messages, aider, gemini_cli, kimi_cli, otel,
    )
}  # fmt: skip
