"""The traps seen in real transcripts, one test or more for each; the numbers are the study's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cases import (
    cc_line,
    codex_call,
    codex_count,
    codex_line,
    codex_result,
    codex_text,
    mini_answer,
    oh_action,
    oh_result,
    result,
    use,
)
from make import conversation, document, jsonl, only, pieces, texts, traces, turn, usage

from akv_rsi.tasks.cost import PRESETS
from akv_rsi.tasks.traces.audit import AuditConfig, audit_trace
from akv_rsi.tasks.traces.calibrate import calibrate
from akv_rsi.tasks.traces.model import model
from akv_rsi.tasks.traces.provider import Tariff, bill

FREE = Tariff(PRESETS["claude"])


def cc_usage(line: dict[str, Any], prompt: int, cached: int, output: int) -> dict[str, Any]:
    line["message"]["usage"] = {
        "input_tokens": prompt - cached, "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0, "output_tokens": output,
    }  # fmt: skip
    return line


def test_1_and_15_the_hidden_prefix_and_the_scale_are_found(tmp_path: Path) -> None:
    """Prompts of 5,000 unseen tokens, and 0.4 tokens a character."""
    messages = conversation(f"line {n} " * (20 + 7 * n) for n in range(8))
    size = 0
    for message in messages:
        if message["role"] == "assistant":
            message["usage"] = usage(5000 + round(0.4 * size), None)
        calls = message.get("tool_calls", [])
        size += len(message["content"])
        size += sum(len(f"look {call['function']['arguments']}") for call in calls)
    scale = calibrate(only(document(tmp_path / "a.json", {"messages": messages})))
    assert scale.source == "calls"
    assert scale.per_unit == pytest.approx(0.4, rel=0.01)
    assert scale.hidden[0] == pytest.approx(5000, abs=20)
    assert scale.error is not None
    assert scale.error < 0.01


def test_2_one_response_over_many_lines_is_one_call(tmp_path: Path) -> None:
    rows = [cc_line("user", "task")]
    rows += [cc_line("assistant", [use(f"c{k}", f"arg-{k}")], 0) for k in range(6)]
    rows[3:3] = [cc_line("user", [result("c0", "first")])]
    rows += [cc_line("user", [result(f"c{k}", f"got-{k}")]) for k in range(1, 6)]
    trace = only(jsonl(tmp_path / "s.jsonl", *rows))
    (context,) = trace.contexts
    (step,) = context.steps
    assert step.calls == 6
    assert step.recorded is not None
    assert step.recorded.usage.uncached == 1000
    kinds = [piece.kind for piece in context.pieces]
    assert kinds == ["user", *["tool_call"] * 6, *["tool_result"] * 6]


def test_3_output_stubs_are_not_believed(tmp_path: Path) -> None:
    said = "A long answer. " * 200
    rows = [cc_line("user", "task"), cc_usage(cc_line("assistant", said, 0), 3000, 0, 2)]
    trace = only(jsonl(tmp_path / "s.jsonl", *rows))
    (context,) = model(trace, calibrate(trace))
    (used,) = bill(context.trajectory.calls, FREE, extra=context.extra).usages
    assert used.output > 500
    agreement = audit_trace(trace, AuditConfig(FREE), None).agreement
    assert agreement.stubs == 1
    assert agreement.recorded.output == used.output


def test_3_hidden_output_is_billed_and_never_comes_back(tmp_path: Path) -> None:
    rows = [cc_line("user", "task"), cc_usage(cc_line("assistant", "Short.", 0), 3000, 0, 900)]
    trace = only(jsonl(tmp_path / "s.jsonl", *rows))
    (context,) = model(trace, calibrate(trace))
    assert context.trajectory.calls[0].output < 10
    assert bill(context.trajectory.calls, FREE, extra=context.extra).usage.output == 900


def test_4_lines_for_the_screen_are_counted_not_read(tmp_path: Path) -> None:
    noise = {"type": "progress", "sessionId": "s", "uuid": "x", "data": {"text": "noise" * 50}}
    rows = [cc_line("user", "task"), *[noise] * 7, cc_line("assistant", "Done.", 0)]
    trace = only(jsonl(tmp_path / "s.jsonl", *rows))
    assert trace.skipped["progress lines"].count == 7
    assert trace.skipped["progress lines"].size >= 7 * 250
    assert not any("noise" in text for text in texts(trace))


def test_4_sub_agents_are_conversations_of_their_own(tmp_path: Path) -> None:
    def side(kind: str, text: str, number: int, uuid: str, parent: str | None) -> dict[str, Any]:
        line = cc_line(kind, text, number, isSidechain=True)
        return {**line, "uuid": uuid, "parentUuid": parent}

    rows = [
        cc_line("user", "main task"),
        side("user", "side task A", -1, "a0", None),
        side("user", "side task B", -1, "b0", None),
        cc_line("assistant", "main answer", 0),
        side("assistant", "side answer A", 1, "a1", "a0"),
        side("assistant", "side answer B", 2, "b1", "b0"),
    ]
    found = {trace.id: texts(trace) for trace in traces(jsonl(tmp_path / "s.jsonl", *rows))}
    assert found["main"] == ["main task", "main answer"]
    assert ["side task A", "side answer A"] in found.values()
    assert ["side task B", "side answer B"] in found.values()
    alone = jsonl(tmp_path / "agent-1.jsonl", *rows[1:2], rows[4])
    assert texts(only(alone)) == ["side task A", "side answer A"]


def test_5_claude_code_compaction_is_a_reset(tmp_path: Path) -> None:
    rows = [
        cc_line("user", "task"),
        cc_line("assistant", "old work", 0),
        {"type": "system", "subtype": "compact_boundary", "sessionId": "s", "uuid": "c"},
        cc_line("user", "a summary", isCompactSummary=True),
        cc_line("assistant", "new work", 1),
    ]
    trace = only(jsonl(tmp_path / "s.jsonl", *rows))
    first, second = trace.contexts
    assert [piece.text for piece in first.pieces] == ["task", "old work"]
    assert [piece.text for piece in second.pieces] == ["a summary", "new work"]
    assert second.cause == "compaction"
    assert "compaction" in trace.flags


def test_5_codex_compaction_keeps_its_replacement(tmp_path: Path) -> None:
    kept = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "kept"}]}
    rows = [
        codex_line("session_meta", instructions="system prompt"),
        codex_text("user", "input_text", "task"),
        codex_text("assistant", "output_text", "old work"),
        codex_line("compacted", message="summary", replacement_history=[kept]),
        codex_text("assistant", "output_text", "new work"),
    ]
    _, second = only(jsonl(tmp_path / "r.jsonl", *rows)).contexts
    assert [piece.text for piece in second.pieces] == ["system prompt", "kept", "new work"]
    assert second.kept == 1


def test_5_openhands_condensation_forgets_what_it_names(tmp_path: Path) -> None:
    condensed = {
        "id": 9, "source": "agent", "action": "condensation",
        "args": {"forgotten_events_start_id": 3, "forgotten_events_end_id": 4, "summary": "sum"},
    }  # fmt: skip
    events = [
        {"id": 1, "source": "user", "action": "message", "args": {"content": "task"}},
        oh_action(3, 0, "run", "one"),
        oh_result(4, 3, "result one"),
        oh_action(5, 1, "run", "two"),
        oh_result(6, 5, "result two"),
        condensed,
        oh_action(10, 2, "run", "three"),
    ]
    _, second = only(document(tmp_path / "e.json", events)).contexts
    found = [piece.text for piece in second.pieces]
    assert found[:2] == ["task", "sum"]
    assert "result two" in found
    assert "result one" not in found
    assert second.kept == 1


def test_6_codex_counts_come_twice_and_reasoning_is_sized_by_usage(tmp_path: Path) -> None:
    def thought(number: int) -> dict[str, Any]:
        return codex_line("response_item", type="reasoning", summary=[], encrypted_content="x" * 99)

    def counted(number: int) -> dict[str, Any]:
        row = codex_count(number)
        row["payload"]["info"]["last_token_usage"]["reasoning_output_tokens"] = 700
        return row

    rows = [
        codex_text("user", "input_text", "task"),
        counted(0), thought(0), codex_call("c1", "one"), codex_result("c1", "got"), counted(0),
        counted(1), thought(1), codex_text("assistant", "output_text", "done"), counted(1),
        codex_text("user", "input_text", "again"),
        counted(2), codex_text("assistant", "output_text", "done again"),
    ]  # fmt: skip
    trace = only(jsonl(tmp_path / "r.jsonl", *rows))
    assert trace.calls == 3
    assert trace.skipped["repeated or empty token counts"].count == 2
    before, after = model(trace, calibrate(trace))
    sizes = {s.kind: s.tokens for s in before.trajectory.segments}
    assert sizes["reasoning"] == 700
    assert after.cause == "reasoning_dropped"
    assert "reasoning" not in {s.kind for s in after.trajectory.segments}


def test_7_truncated_outputs_are_flagged(tmp_path: Path) -> None:
    clipped = (
        "<returncode>0</returncode>\n<output_head>a\n</output_head>\n<output_tail>b</output_tail>"
    )
    messages = [
        {"role": "system", "content": "s"}, {"role": "user", "content": "task"},
        mini_answer(0, "```bash\nls\n```"), {"role": "user", "content": clipped},
    ]  # fmt: skip
    body = {"trajectory_format": "mini-swe-agent-1", "messages": messages}
    trace = only(document(tmp_path / "m.json", body))
    assert "tool_output_truncated_by_harness" in trace.flags


def test_7_ephemeral_tags_are_seen(tmp_path: Path) -> None:
    tagged = "<ephemeral_observation>\npoll: 3%\n</ephemeral_observation>"
    messages = [{"role": "user", "content": "task"}, *turn(0, tagged), *turn(1, "kept")]
    trace = only(document(tmp_path / "e.json", {"messages": messages}))
    (context,) = model(trace, calibrate(trace))
    results = [s.ephemeral for s in context.trajectory.segments if s.kind == "tool_result"]
    assert results == [True, False]


def test_8_parallel_calls_orphans_and_one_output_for_many(tmp_path: Path) -> None:
    calls = [{"id": f"p{k}", "function": {"name": "t", "arguments": "{}"}} for k in range(278)]
    answers = [{"role": "tool", "tool_call_id": f"p{k}", "content": f"r{k}"} for k in range(277)]
    orphan = {"role": "tool", "tool_call_id": "nobody", "content": "an orphan"}
    messages = [
        {"role": "user", "content": "task"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        *answers, orphan, {"role": "assistant", "content": "done"},
    ]  # fmt: skip
    trace = only(document(tmp_path / "p.json", {"messages": messages}))
    assert trace.contexts[0].steps[0].calls == 278
    assert trace.skipped["tool calls without a result"].count == 1
    assert trace.skipped["tool results without their call (kept)"].count == 1
    assert "an orphan" in texts(trace)
    assert {p.turn for p in pieces(trace) if p.kind == "tool_result"} == {0}


def responses(*output: dict[str, Any], prompt: Any = "task") -> dict[str, Any]:
    return {"responses_create_params": {"input": prompt}, "response": {"output": list(output)}}


def test_9_calls_spelled_out_in_the_message_count_once(tmp_path: Path) -> None:
    command = "ls -la /app\n"
    said = json.dumps({"analysis": "look", "commands": [{"keystrokes": command}]})
    args = json.dumps({"keystrokes": command})
    row = responses(
        {"type": "message", "role": "assistant", "content": said},
        {"type": "function_call", "name": "bash", "call_id": "c", "arguments": args},
        {"type": "function_call_output", "call_id": "c", "output": "files"},
    )  # fmt: skip
    trace = only(jsonl(tmp_path / "r.jsonl", row))
    call = next(piece for piece in pieces(trace) if piece.kind == "tool_call")
    assert call.size == 0
    answer = next(piece for piece in pieces(trace) if piece.kind == "tool_result")
    assert (answer.tool, "ls -la" in (answer.call or "")) == ("bash", True)
    assert "tool calls that repeat the message's text" in trace.skipped


def test_9_a_missing_prompt_is_flagged(tmp_path: Path) -> None:
    said = {"type": "message", "role": "assistant", "content": "hello"}
    assert "prompt_missing" in only(jsonl(tmp_path / "r.jsonl", responses(said, prompt=[]))).flags


def test_10_nudges_are_flagged_and_kept_out_of_policy_statistics(tmp_path: Path) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "task"}]
    for _ in range(6):
        messages += [{"role": "assistant", "content": "done"}, {"role": "user", "content": "go on"}]
    messages.append({"role": "assistant", "content": "done"})
    rounds = [{"prompt_tokens": 900 + k, "output_tokens": 5, "reasoning": "done"} for k in range(6)]
    body = {"benchmark": "b", "trace": {"messages": messages, "rounds": rounds}}
    trace = only(document(tmp_path / "g.json", body))
    assert "injected_user_nudges" in trace.flags
    records = [step.recorded for step in trace.contexts[0].steps]
    assert [record is None for record in records] == [False] * 6 + [True]
    assert trace.skipped["reasoning that repeats the message"].count == 6
    assert not audit_trace(trace, AuditConfig(FREE), None).speaks_for_policies


def test_11_reasoning_that_is_not_sent_again_is_output_only(tmp_path: Path) -> None:
    answers = [mini_answer(k, f"```bash\nlook {k}\n```") for k in range(2)]
    for answer in answers:
        answer["extra"]["response"]["choices"][0]["message"]["reasoning"] = "hidden " * 400
        answer["extra"]["response"].pop("usage")
    messages = [
        {"role": "system", "content": "s"}, {"role": "user", "content": "task"},
        answers[0], {"role": "user", "content": "<returncode>0</returncode>"}, answers[1],
    ]  # fmt: skip
    trace = only(
        document(
            tmp_path / "m.json", {"trajectory_format": "mini-swe-agent-1", "messages": messages}
        )
    )
    (context,) = model(trace, calibrate(trace))
    assert context.trajectory.calls[-1].prompt < 100
    assert all(extra > 500 for extra in context.extra)
    assert trace.skipped["reasoning that is never sent again"].count == 2


def test_12_demonstrations_belong_to_the_prompt(tmp_path: Path) -> None:
    history = [
        {"role": "system", "content": "s"},
        {"role": "assistant", "content": "shown", "is_demo": True, "action": "ls"},
        {"role": "user", "content": "task"},
        {"role": "assistant", "content": "ls", "thought": "", "action": "ls"},
        {"role": "user", "content": "files"},
    ]
    trace = only(document(tmp_path / "d.traj", {"trajectory": [], "history": history}))
    assert trace.calls == 1
    kinds = [(piece.kind, piece.text) for piece in pieces(trace)]
    assert ("user", "shown") in kinds
    assert ("tool_result", "files") in kinds


def test_13_prompts_that_do_not_grow_are_told(tmp_path: Path) -> None:
    messages = conversation("page " * 300 for _ in range(8))
    for message in messages:
        if message["role"] == "assistant":
            message["usage"] = usage(2000, None)
    trace = only(document(tmp_path / "w.json", {"messages": messages}))
    scale = calibrate(trace)
    assert scale.source == "assumed"
    assert "do not grow" in scale.unfit
    agreement = audit_trace(trace, AuditConfig(FREE), None).agreement
    assert not agreement.agrees
    assert "do not grow" in agreement.why


def test_14_images_empty_results_escapes_and_surrogates(tmp_path: Path) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:" + "A" * 9999}}
    unknown = {"type": "video", "data": "B" * 50}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "see"}, image, unknown]},
        *turn(0, ""), *turn(1, "\x1b[31mred\x1b[0m\r\n"), *turn(2, "lone \ud83d here"),
        {"role": "assistant", "content": "done"},
    ]  # fmt: skip
    trace = only(document(tmp_path / "i.json", {"messages": messages}))
    first = pieces(trace)[0]
    assert (first.text, first.fixed) == ("see", 1500)
    assert trace.skipped["content of type 'video'"].size == 55
    assert "lone \ufffd here" in texts(trace)
    assert trace.skipped["lone surrogates or bad bytes, replaced"].count == 1
    assert "".join(texts(trace)).encode()
    assert all(s.tokens >= 1 for m in model(trace, calibrate(trace)) for s in m.trajectory.segments)
