"""Memory does not grow with a file: elements of a document, lines, and what becomes of them."""

from __future__ import annotations

import io
import json
import resource
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from make import turn

from akv_rsi.policies import library
from akv_rsi.tasks.traces.audit import AuditConfig, Sampled, audit_trace
from akv_rsi.tasks.traces.draft import Options
from akv_rsi.tasks.traces.jsonwalk import JsonError, JsonWalker
from akv_rsi.tasks.traces.read import Reading
from akv_rsi.tasks.traces.replays import Replayer
from akv_rsi.tasks.traces.report import Report

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


def walk(text: str, chunk: int, *opened: tuple[str, ...]) -> list[Any]:
    stream = io.StringIO(text)
    return [*JsonWalker(lambda _: stream.read(chunk), set(opened)).walk()]


@settings(deadline=None, max_examples=40)
@given(st.dictionaries(st.text(max_size=3), JSON, max_size=5), st.integers(5, 30))
def test_elements_do_not_depend_on_where_the_buffer_ends(value: dict[str, Any], chunk: int) -> None:
    items = walk(json.dumps(value, indent=1) + "\n", chunk)
    assert {item.path[0]: item.value for item in items} == value
    assert all(len(item.path) == 1 for item in items)


@settings(deadline=None, max_examples=40)
@given(st.lists(JSON, min_size=1, max_size=4), st.integers(5, 30))
def test_documents_follow_each_other(values: list[Any], chunk: int) -> None:
    text = "\n".join(json.dumps([value]) for value in values)
    items = walk(text, chunk)
    assert [(item.document, item.value) for item in items] == [*enumerate(values)]


def test_opened_containers_come_piece_by_piece_with_their_lines() -> None:
    text = '{"a": [\n1,\n{"b": 2}],\n"c": {"d": [3]}}'
    items = walk(text, 3, ("a",))
    assert [(item.path, item.value, item.line) for item in items] == [
        (("a", 0), 1, 2),
        (("a", 1), {"b": 2}, 3),
        (("c",), {"d": [3]}, 4),
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"a": 1', 1), ('{"a" 1}', 1), ('[1\n2]', 2), ('[1,\n]', 2), ('["x\n', 1), ("{1: 2}", 1),
        ("[" * 100_000, 1), ('{"a": tru}', 1),
    ],
)  # fmt: skip
def test_errors_tell_the_line(text: str, line: int) -> None:
    with pytest.raises(JsonError) as caught:
        walk(text, 5, ("a",), ("*",), ("*", "*"))
    assert caught.value.line == line


def chat(path: Path, calls: int, result: str) -> Path:
    with path.open("w") as file:
        file.write('{"messages": [' + json.dumps({"role": "user", "content": "task"}))
        for number in range(calls):
            for message in turn(number, f"{number} {result}"):
                file.write(",\n" + json.dumps(message))
        file.write("]}")
    return path


def test_a_large_document_takes_little_memory(tmp_path: Path) -> None:
    path = chat(tmp_path / "large.json", 400, "some text " * 2500)
    assert path.stat().st_size > 10_000_000
    tracemalloc.start()
    (trace,) = Reading([path])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert trace.calls == 400
    assert peak < 9_000_000


def codex(path: Path, rounds: int, result: str) -> Path:
    """A rollout in which the user speaks again and again: each time reasoning is forgotten."""

    def item(**payload: Any) -> str:
        return json.dumps({"type": "response_item", "payload": payload}) + "\n"

    with path.open("w") as file:
        file.write(json.dumps({"type": "session_meta", "payload": {"id": "s"}}) + "\n")
        for number in range(rounds):
            file.write(item(type="message", role="user", content=f"task {number}"))
            file.write(item(type="reasoning", summary=[], encrypted_content="e" * 50))
            file.write(item(type="function_call", name="look", arguments="{}", call_id=f"{number}"))
            output = f"{number} {result}"
            file.write(item(type="function_call_output", call_id=f"{number}", output=output))
    return path


def test_a_context_rewritten_a_thousand_times_costs_no_square(tmp_path: Path) -> None:
    (small,) = Reading([codex(tmp_path / "a.jsonl", 40, "some text")], Options(copies=10**6))
    (bundled,) = Reading([codex(tmp_path / "a.jsonl", 40, "some text")], Options(copies=100))
    assert [c.kept for c in small.contexts[:3]] == [c.kept for c in bundled.contexts[:3]]
    costs = [audit_trace(t, AuditConfig(), None).full.cost for t in (small, bundled)]
    assert costs[1] == pytest.approx(costs[0], rel=0.01)
    (large,) = Reading([codex(tmp_path / "b.jsonl", 1000, "some text")], Options(copies=1000))
    assert len(large.contexts) > 900
    assert sum(len(context.pieces) for context in large.contexts) < 15_000


@pytest.mark.parametrize(
    ("sample", "replayed"), [(0, [*range(11)]), (11, [*range(11)]), (3, [0, 4, 8])]
)
def test_of_many_conversations_an_even_sample_is_replayed(
    tmp_path: Path, sample: int, replayed: list[int]
) -> None:
    paths = [chat(tmp_path / f"{number:02}.json", 2, "some text") for number in range(11)]
    config = AuditConfig(policies={"full": library.spec("full")}, sample=sample)
    reading = Reading(paths)
    with Replayer([*config.policies.values()], config.setting) as replayer:
        sampled = Sampled(config, replayer)
        for trace in reading:
            sampled.take(trace)
    assert [n for n, audit in enumerate(sampled.audits) if audit.policies] == replayed
    report = Report(sampled.audits, reading.files, config).to_json()
    told = [note for note in report["notes"] if "on 3 of 11 conversations" in note]
    assert len(told) == (sample == 3)
    assert len(report["traces"]) == 11


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["one document", "lines", "conversations"])
def test_200_megabytes_in_30_seconds_and_500_megabytes(tmp_path: Path, kind: str) -> None:
    """CPU seconds, so that what else the machine does is not measured."""
    if kind == "lines":
        path = codex(tmp_path / "huge.jsonl", 24_000, "some text of a tool " * 410)
    elif kind == "conversations":
        one = chat(tmp_path / "one.json", 10, "some text of a tool " * 100).read_text()
        path = tmp_path / "huge.jsonl"
        one = one.replace("\n", "") + "\n"
        with path.open("w") as file:
            file.writelines(one for _ in range(200_000_000 // len(one) + 1))
    else:
        path = chat(tmp_path / "huge.json", 48_000, "some text of a tool " * 200)
    assert path.stat().st_size > 200_000_000
    code = "import sys; from akv_rsi.cli import run; sys.exit(run(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "audit", str(path), "--json"]
    command += ["--work", "0"] if kind == "conversations" else []
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime - before.ru_utime
    print(f"{time.monotonic() - start:.1f} s, {spent:.1f} CPU s, {after.ru_maxrss >> 10} MiB")
    assert spent < 30
    assert after.ru_maxrss < 500 << 10
