"""Misses, what was fetched again, make-up, agreement and the sums over many traces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cases import cc_line, result, use
from make import conversation, document, jsonl, only, turn, usage

from akv_rsi.policies import library
from akv_rsi.tasks.cost import PRESETS
from akv_rsi.tasks.traces.advice import advice
from akv_rsi.tasks.traces.audit import AuditConfig, TraceAudit, audit_trace
from akv_rsi.tasks.traces.calibrate import calibrate
from akv_rsi.tasks.traces.misses import by_cause, find_misses
from akv_rsi.tasks.traces.overall import claims_of, distribution, misses_of, policies_of
from akv_rsi.tasks.traces.provider import RULES, Tariff
from akv_rsi.tasks.traces.refetch import find_refetched
from akv_rsi.tasks.traces.replays import Replayer
from akv_rsi.tasks.traces.trace import Trace

CLAUDE = Tariff(PRESETS["claude"], RULES["claude"])


def session(folder: Path, *calls: tuple[int, int, int], before: Sequence[Any] = ()) -> Trace:
    """A Claude Code session: (second, prompt, cached) of each call; ``before`` go with call 3."""
    rows = [cc_line("user", "task " * 200)]
    for number, (second, prompt, cached) in enumerate(calls):
        if number == 3:
            rows.extend(before)
        line = cc_line("assistant", [use(f"c{number}", f"step-{number}")])
        line["timestamp"] = (
            f"2026-01-01T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z"
        )
        line["message"] |= {
            "id": f"m{number}", "usage": {
                "input_tokens": 0, "cache_creation_input_tokens": prompt - cached,
                "cache_read_input_tokens": cached, "output_tokens": 50,
            },
        }  # fmt: skip
        rows += [line, cc_line("user", [result(f"c{number}", f"got {number} " * 300)])]
    return only(jsonl(folder / "s.jsonl", *rows))


SMOOTH = [(0, 20_000, 0), (20, 21_000, 20_000), (40, 22_000, 21_000)]


@pytest.mark.parametrize(
    ("last", "before", "cause"),
    [
        ((60, 23_000, 2_000), (), "unknown collapse"),
        ((400, 23_000, 2_000), (), "idle gap"),
        ((60, 15_000, 2_000), (), "edit"),
        ((60, 9_000, 2_000), ("compact",), "compaction"),
    ],
)
def test_misses_are_found_and_priced_by_cause(
    last: tuple[int, int, int], before: tuple[str, ...], cause: str, tmp_path: Path
) -> None:
    boundary = {"type": "system", "subtype": "compact_boundary", "sessionId": "s", "uuid": "c"}
    rows = [boundary, cc_line("user", "summary")] if before else []
    trace = session(tmp_path, *SMOOTH, last, before=rows)
    (miss,) = find_misses(trace, CLAUDE)
    lost = min(22_000, last[1]) - 2_000
    assert (miss.call, miss.cause, miss.lost) == (3, cause, lost)
    assert miss.cost == pytest.approx(lost * (1.25 - 0.1))
    assert by_cause([miss]) == {cause: {"misses": 1, "lost": lost, "cost": miss.cost}}


def test_a_longer_life_time_that_was_asked_for_counts(tmp_path: Path) -> None:
    trace = session(tmp_path, *SMOOTH, (400, 23_000, 2_000))
    for context in trace.contexts:
        for step in context.steps:
            step.ttl = 3600.0
    assert [miss.cause for miss in find_misses(trace, CLAUDE)] == ["unknown collapse"]


def test_small_change_is_no_miss_and_silence_is_none(tmp_path: Path) -> None:
    assert not find_misses(session(tmp_path, *SMOOTH, (60, 23_000, 21_200)), CLAUDE)
    messages = conversation("x" * 900 for _ in range(5))
    for message in messages:
        if message["role"] == "assistant":
            message["usage"] = usage(9000, None)
    assert not find_misses(only(document(tmp_path / "c.json", {"messages": messages})), CLAUDE)


def test_dropped_reasoning_is_an_edit(tmp_path: Path) -> None:
    thought = cc_line("assistant", [{"type": "thinking", "thinking": "hm"}])
    thought["message"]["id"] = "m2"
    trace = session(
        tmp_path, *SMOOTH, (60, 23_000, 2_000), before=[thought, cc_line("user", "and now?")]
    )
    (miss,) = find_misses(trace, CLAUDE)
    assert (miss.cause, "reasoning" in miss.hint) == ("edit", True)


def test_what_was_fetched_again(tmp_path: Path) -> None:
    same, other = "same content " * 40, "other content " * 40
    messages: list[dict[str, Any]] = [{"role": "user", "content": "task"}]
    messages += [*turn(0, same, args={"p": "a"}), *turn(1, other, args={"p": "b"})]
    messages += [*turn(2, same, args={"p": "a"}), *turn(3, same + "!", args={"p": "a"})]
    messages += turn(4, other, args={"p": "c"})
    trace = only(document(tmp_path / "c.json", {"messages": messages}))
    found = find_refetched(trace, calibrate(trace))
    (repeat,) = found.repeats
    assert (repeat.tool, repeat.call, repeat.times) == ("look", '{"p": "a"}', 3)
    assert repeat.identical == 1
    assert repeat.after_reset == 0
    size = len(same) * 1.25 / 4
    assert found.repeated == pytest.approx(2 * size, rel=0.02)
    assert found.identical == pytest.approx(size, rel=0.02)
    assert found.copies == pytest.approx(len(other) * 1.25 / 4, rel=0.02)


def test_a_compaction_makes_agents_fetch_again(tmp_path: Path) -> None:
    boundary = {"type": "system", "subtype": "compact_boundary", "sessionId": "s", "uuid": "c"}
    rows = [
        cc_line("user", "task"),
        cc_line("assistant", [use("c1", "a")], 0),
        cc_line("user", [result("c1", "content " * 90)]),
        boundary,
        cc_line("user", "summary"),
        cc_line("assistant", [use("c2", "a")], 1),
        cc_line("user", [result("c2", "content " * 90)]),
        cc_line("assistant", "done", 2),
    ]
    trace = only(jsonl(tmp_path / "s.jsonl", *rows))
    found = find_refetched(trace, calibrate(trace))
    assert found.after_reset == found.repeated > 0


def audited(trace: Trace, *names: str) -> TraceAudit:
    specs = {name: library.spec(name) for name in names}
    config = AuditConfig(CLAUDE, specs)
    with Replayer(list(specs.values()), config.setting) as replayer:
        return audit_trace(trace, config, replayer)


def test_an_audit_by_hand(tmp_path: Path) -> None:
    """Three calls; what each kind holds, and how often the later calls read it again."""
    messages = [{"role": "user", "content": "u" * 320}, *turn(0, "r" * 3200), *turn(1, "s" * 320)]
    messages.append({"role": "assistant", "content": "done"})
    audit = audited(only(document(tmp_path / "c.json", {"messages": messages})), "full")
    mix = {share.name: (share.tokens, share.read) for share in audit.mix}
    assert mix["user"] == (100, 200)
    assert mix["tool_result"] == (1100, 1000)
    assert [(share.name, share.count) for share in audit.tools] == [("look", 2)]
    assert audit.calls == 3
    assert audit.tool_calls == 2
    assert [call for call, _ in audit.curve] == [0, 1, 2]
    assert audit.curve[-1][1] == audit.longest
    assert audit.scale.source == "assumed"
    assert [priced.prices for priced in audit.prices] == ["claude", "deepseek", "gpt", "gpu"]
    assert audit.agreement.compared == "nothing"
    assert "no usage" in audit.agreement.why
    assert audit.policies[0].ratio == 1.0


def test_recorded_and_modelled_cost_agree(tmp_path: Path) -> None:
    """A record made by the model's own rule: all but the last call's additions are read."""
    messages, size, before = conversation("line " * (50 + k) for k in range(12)), 0, 0
    for message in messages:
        if message["role"] == "assistant":
            prompt = 3000 + round(0.33 * size)
            message["usage"] = usage(prompt, before, 20)
            before = prompt
        size += len(message["content"])
        size += sum(
            len(f"look {c['function']['arguments']}") for c in message.get("tool_calls", [])
        )
    audit = audited(only(document(tmp_path / "c.json", {"messages": messages})))
    assert audit.agreement.compared == "cost"
    assert audit.agreement.agrees
    assert abs(audit.agreement.difference or 1) < 0.02
    assert not audit.misses


def test_disagreement_says_why(tmp_path: Path) -> None:
    calls = [(20 * k, 20_000 + 1000 * k, 2_000 * (k > 0)) for k in range(8)]
    audit = audited(session(tmp_path, *calls))
    assert not audit.agreement.agrees
    assert "fewer from its cache" in audit.agreement.why
    assert "7 by unknown collapse" in audit.agreement.why


def test_sums_and_distributions(tmp_path: Path) -> None:
    one = audited(session(tmp_path, *SMOOTH, (60, 23_000, 2_000)), "full", "rolling_drop")
    long = [(20 * k, 20_000 + 1000 * k, (19_000 + 1000 * k) * (k > 0)) for k in range(9)]
    two = audited(session(tmp_path, *long), "full", "rolling_drop")
    table = misses_of([one, two])
    written = one.agreement.recorded.written + two.agreement.recorded.written
    assert table["unknown collapse"]["share_of_writes"] == pytest.approx(20_000 / written)
    full, drop = policies_of([one, two])
    assert (full.traces, full.ratio, full.breaks_even) == (1, 1.0, True), "four calls are too few"
    assert drop.ratio is not None
    reads = next(claim for claim in claims_of([one, two]) if claim.name.startswith("KV reads"))
    assert reads.all is not None
    assert reads.all.n == 1
    assert dict(reads.by_length)["50+ calls"] is None
    assert any("ask the provider why" in line for line in advice([one, two]))


def test_quantiles() -> None:
    spread = distribution([3, 1, 2])
    assert spread is not None
    assert (spread.n, spread.p50) == (3, 2.0)
    assert distribution([]) is None
