"""Files in other encodings, broken ones, and what is no message: read or told, never lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from make import conversation, document, only, texts

from akv_rsi.tasks.traces.read import Reading, troubles


@pytest.mark.parametrize("name", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"])
@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_other_unicode_encodings_are_read(tmp_path: Path, name: str, suffix: str) -> None:
    messages = conversation(["résultat ü"] * 3)
    plain, coded = tmp_path / f"plain.{suffix}", tmp_path / f"coded.{suffix}"
    body = json.dumps({"messages": messages}, ensure_ascii=False) + "\n"
    plain.write_text(body, encoding="utf-8")
    coded.write_bytes(body.encode(name))
    assert texts(only(coded)) == texts(only(plain))


@pytest.mark.parametrize("name", ["utf-16", "utf-32-le"])
def test_what_is_broken_in_them_is_told(tmp_path: Path, name: str) -> None:
    body = json.dumps({"messages": conversation(["result"] * 9)}).encode(name)
    path = tmp_path / "cut.json"
    path.write_bytes(body[: len(body) * 2 // 3 | 1])
    reading = Reading([path])
    (trace,) = reading
    assert 3 < trace.calls < 10
    (line,) = troubles(reading.files)
    assert line.startswith(f"{path}:1: ")
    assert "and 1 more" in line


def test_what_is_no_tool_call_is_counted(tmp_path: Path) -> None:
    odd = [
        {"role": "assistant", "content": 5, "tool_calls": "look"},
        {"role": "assistant", "tool_calls": [None, {"function": {"name": "look"}}, 7]},
        {"role": "assistant", "tool_calls": {"function": {}}},
    ]
    messages = [{"role": "user", "content": "go"}, *odd]
    trace = only(document(tmp_path / "odd.json", {"messages": messages}))
    assert trace.calls == 3
    assert trace.skipped["tool calls that are no objects"].count == 4
    assert trace.skipped["content of type 'int'"].count == 1
