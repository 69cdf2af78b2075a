"""The conformance suite: every reader, on the same conversation in its own format.

R1  a file is recognised, by its own reader alone or by the first of those that fit
R2  calls, links and order are those of the conversation
R3  every text is in the conversation once, or counted as skipped
R4  recorded usage is read
R5  a trace becomes trajectories that the cost model accepts
R6  a file cut anywhere, or damaged anywhere, is read as far as it goes; the fault is told
R7  line ends, byte order marks and bad bytes change nothing else
R8  reading twice gives the same
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cases import CASES, LONG, USAGE, Case

from akv_rsi.tasks.cost import PRESETS, usages
from akv_rsi.tasks.traces.calibrate import calibrate
from akv_rsi.tasks.traces.model import model
from akv_rsi.tasks.traces.provider import Tariff, bill
from akv_rsi.tasks.traces.read import Reading, detect, reader_named
from akv_rsi.tasks.traces.readers import READERS
from akv_rsi.tasks.traces.trace import Piece, Trace

Make = Callable[[], Case]
every_format = pytest.mark.parametrize("make", CASES.values(), ids=list(CASES))


def write(folder: Path, case: Case, data: bytes | None = None) -> Path:
    path = folder / case.name
    path.write_bytes(case.text.encode() if data is None else data)
    return path


def read(path: Path, case: Case) -> tuple[list[Trace], Reading]:
    reading = Reading([path], format_name=case.reader)
    return list(reading), reading


def pieces(trace: Trace) -> list[Piece]:
    return [piece for context in trace.contexts for piece in context.pieces if not piece.copied]


def one(folder: Path, case: Case) -> Trace:
    traces, reading = read(write(folder, case), case)
    assert [file.problems for file in reading.files] == [[]]
    (trace,) = traces
    return trace


def test_every_reader_has_a_case() -> None:
    assert {make().reader for make in CASES.values()} == {reader.name for reader in READERS}


@every_format
def test_r1_recognised(make: Make, tmp_path: Path) -> None:
    case = make()
    found = detect(write(tmp_path, case))
    assert found is not None
    assert found.name == case.reader


@every_format
def test_r2_calls_links_and_order(make: Make, tmp_path: Path) -> None:
    case = make()
    trace = one(tmp_path, case)
    (context,) = trace.contexts
    assert trace.calls == case.calls
    assert set(case.flags) <= trace.flags
    results = [piece for piece in context.pieces if piece.kind == "tool_result"]
    where = [piece.turn for piece in results]
    assert where == ([0, 1, 1] if case.parallel else [0, 1] if case.reader != "aider" else [0])
    if case.reader != "aider":
        assert "delta-result" in results[0].text
        assert results[0].tool in ("look", "bash")
        assert "gamma-args" in (results[0].call or "")
    if case.parallel:
        assert [step.calls for step in context.steps] == [1, 2, 0]
        assert "eps-one" in (results[1].call or "")
        assert "eps-two" in (results[2].call or "")
    for number, step in enumerate(context.steps):
        written = context.pieces[step.prompt : step.end]
        assert written, number
        assert all(piece.kind in ("assistant", "tool_call") for piece in written)
        assert all(piece.turn == number for piece in written)


@every_format
def test_r3_every_text_once(make: Make, tmp_path: Path) -> None:
    case = make()
    texts = [piece.text for piece in pieces(one(tmp_path, case))]
    marks = {"alpha-task", "beta-say", "gamma-args", "delta-result", "zeta-one", "eta-done"}
    marks |= {"iota-system"} if "system" in case.has else set()
    marks |= {"theta-tools"} if "tools" in case.has else set()
    marks |= {"eps-one", "eps-two", "zeta-two"} if case.parallel else set()
    for mark in marks:
        assert sum(text.count(mark) for text in texts) == 1, mark
    assert not any("kappa" in text or "noise" in text for text in texts)
    assert sum(LONG.strip() in text for text in texts) == 1


@every_format
def test_r4_recorded_usage(make: Make, tmp_path: Path) -> None:
    case = make()
    trace = one(tmp_path, case)
    records = [step.recorded for context in trace.contexts for step in context.steps]
    if not case.usage:
        assert records == [None] * 3
        return
    for record, (prompt, cached, output) in zip(records, USAGE, strict=True):
        assert record is not None
        usage = record.usage
        assert usage.output == output
        if case.reader == "aider":
            assert usage.uncached == pytest.approx(prompt, abs=50)
        else:
            assert usage.uncached + usage.cached == prompt
        assert usage.cached == (cached if record.caching else 0)


@every_format
def test_r5_trajectories(make: Make, tmp_path: Path) -> None:
    trace = one(tmp_path, make())
    contexts = model(trace, calibrate(trace))
    assert sum(len(context.trajectory.calls) for context in contexts) == trace.calls
    for context in contexts:
        end = 0
        for number, segment in enumerate(context.trajectory.segments):
            assert (segment.id, segment.start) == (number, end)
            assert segment.tokens >= 1
            end = segment.end
        before = 0
        for call in context.trajectory.calls:
            assert call.reused == before
            assert before <= call.prompt <= end
            before = call.prompt + call.output
        prices = PRESETS["claude"]
        billed = bill(context.trajectory.calls, Tariff(prices))
        assert [*billed.usages] == [*usages(context.trajectory, prices)]


@every_format
def test_r6_cut_anywhere(make: Make, tmp_path: Path) -> None:
    case = make()
    data = case.text.encode()
    whole = one(tmp_path, case)
    for cut in random.Random(0).sample(range(1, len(data)), 15):
        traces, reading = read(write(tmp_path, case, data[:cut]), case)
        assert sum(trace.calls for trace in traces) <= whole.calls
        (file,) = reading.files
        complete = data[:cut].rstrip().endswith((b"}", b"]")) or case.reader == "aider"
        assert file.problems or complete or not data[cut:].strip(), cut
        assert all(problem.line >= 0 and problem.why for problem in file.problems)


@every_format
def test_r6_damaged_anywhere(make: Make, tmp_path: Path) -> None:
    case = make()
    rng = random.Random(1)
    for _ in range(15):
        data = bytearray(case.text.encode())
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(len(data))
            data[at : at + rng.randint(0, 4)] = rng.choice(
                [b"", b"null", b"[", b'"', b"\xff\xfe", b"9"]
            )
        traces, _ = read(write(tmp_path, case, bytes(data)), case)
        for trace in traces:
            model(trace, calibrate(trace))


ODD = [None, 0, -5, 1e308, True, "", [], {}, [None], [1, "a", {}], {"a": 1}, {"type": "text"}]


def mutated(value: Any, rng: random.Random, share: float) -> Any:
    if rng.random() < share:
        return rng.choice(ODD)
    if isinstance(value, dict):
        return {key: mutated(inner, rng, share) for key, inner in value.items()}
    if isinstance(value, list):
        return [mutated(inner, rng, share) for inner in value]
    return value


@every_format
def test_r6_values_of_another_kind(make: Make, tmp_path: Path) -> None:
    """Well-formed JSON that is not what the format says."""
    case = make()
    if case.reader == "aider":
        return
    by_line = case.name.endswith("jsonl")
    documents = [json.loads(line) for line in (case.text.splitlines() if by_line else [case.text])]
    for seed in range(12):
        rng = random.Random(seed)
        rows = [json.dumps(mutated(row, rng, rng.choice([0.01, 0.1]))) for row in documents]
        path = write(tmp_path, case, "\n".join(rows).encode())
        detect(path)
        for trace in read(path, case)[0]:
            model(trace, calibrate(trace))


@every_format
def test_r7_line_ends_and_marks(make: Make, tmp_path: Path) -> None:
    case = make()
    plain = [(p.kind, p.text) for p in pieces(one(tmp_path, case))]
    data = b"\xef\xbb\xbf" + case.text.replace("\n", "\r\n").encode()
    (trace,), reading = read(write(tmp_path, case, data), case)
    assert not reading.files[0].problems
    assert [(p.kind, p.text) for p in pieces(trace)] == plain
    wide = case.text.encode("utf-16")
    (trace,), _ = read(write(tmp_path, case, wide), case)
    assert [(p.kind, p.text) for p in pieces(trace)] == plain


@every_format
def test_r7_bad_bytes_are_replaced_and_told(make: Make, tmp_path: Path) -> None:
    case = make()
    data = case.text.encode().replace(b"delta-result", b"delta-\xe9\xff-result", 1)
    traces, reading = read(write(tmp_path, case, data), case)
    assert any("is no UTF-8" in problem.why for problem in reading.files[0].problems)
    texts = [piece.text for trace in traces for piece in pieces(trace)]
    assert any("delta-\ufffd\ufffd-result" in text for text in texts)
    assert all(text.encode() for text in texts if text)


@every_format
def test_r8_deterministic(make: Make, tmp_path: Path) -> None:
    case = make()
    assert one(tmp_path, case) == one(tmp_path, case)


def test_unknown_formats_are_named(tmp_path: Path) -> None:
    from akv_rsi.errors import ConfigError

    with pytest.raises(ConfigError, match="claude_code"):
        reader_named("word")
    note = tmp_path / "notes.md"
    note.write_text("# Notes\n")
    assert detect(note) is None
