"""Real transcripts, where there are some: their counts, their agreement, published figures.

They lie beside the repository, or where ``AKV_TRACES`` says, with a ``MANIFEST.csv``.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from akv_rsi.tasks.cost import PRESETS
from akv_rsi.tasks.traces.audit import AuditConfig, TraceAudit, audit_trace
from akv_rsi.tasks.traces.draft import Options
from akv_rsi.tasks.traces.overall import claims_of
from akv_rsi.tasks.traces.provider import RULES, Tariff
from akv_rsi.tasks.traces.read import Reading, detect, find_files

BESIDE = Path(__file__).parents[3] / "shared" / "traces"
ROOT = Path(os.environ.get("AKV_TRACES", BESIDE))
pytestmark = pytest.mark.skipif(
    not (ROOT / "MANIFEST.csv").is_file(), reason=f"no transcripts in {ROOT}: set AKV_TRACES"
)
# The manifest counts otherwise: 60 of 200 trials are in the file; its aider calls are guesses;
# Kimi's are requests, most of them tried again.
COUNTED_OTHERWISE = ("openai_chat_taubench", "aider_chat_history_md", "kimi_cli_jsonl")


def manifest() -> Iterator[dict[str, str]]:
    with (ROOT / "MANIFEST.csv").open(encoding="utf-8") as file:
        yield from csv.DictReader(file)


@pytest.fixture(scope="module")
def read() -> tuple[Reading, list[TraceAudit]]:
    reading = Reading(find_files([ROOT]), Options(texts=64))
    config = AuditConfig(Tariff(PRESETS["claude"], RULES["claude"]))
    return reading, [audit_trace(trace, config, None) for trace in reading]


def test_formats_are_recognised() -> None:
    names = {
        "aider_chat_history_md": "aider", "claude_code_jsonl": "claude_code",
        "codex_rollout_jsonl": "codex", "gemini_cli_session": "gemini_cli",
        "general_agentbench_trace": "general_agentbench", "kimi_cli_jsonl": "kimi_cli",
        "mini_swe_agent_traj": "mini_swe_agent", "openhands_events": "openhands",
        "openai_responses_rollout": "openai_responses", "otel_otlp_json": "otel_genai",
        "sweagent_traj": "sweagent",
    }  # fmt: skip
    for row in manifest():
        reader = detect(ROOT / row["file"])
        assert reader is not None, row["file"]
        assert reader.name == names.get(row["format"], row["format"])


def test_calls_and_tools_are_those_of_the_manifest(read: tuple[Reading, list[TraceAudit]]) -> None:
    reading, audits = read
    calls = {file.path: file.calls for file in reading.files}
    tools: dict[str, int] = {}
    for audit in audits:
        tools[audit.path] = tools.get(audit.path, 0) + audit.tool_calls
    for row in manifest():
        path = str(ROOT / row["file"])
        if not row["llm_calls"] or row["format"] in COUNTED_OTHERWISE:
            continue
        assert calls[path] == int(row["llm_calls"]), row["file"]
        if row["format"] not in ("openhands_events", "mini_swe_agent_traj"):
            assert tools.get(path, 0) == pytest.approx(int(row["tool_calls"]), abs=1), row["file"]


def test_nothing_is_damaged(read: tuple[Reading, list[TraceAudit]]) -> None:
    told = {Path(f.path).name: [p.why for p in f.problems] for f in read[0].files if f.problems}
    assert set(told) == {"MANIFEST.csv", "SCHEMAS.md", "dazzaji__test-traces.json"}


def test_recorded_and_modelled_usage_agree_or_say_why(
    read: tuple[Reading, list[TraceAudit]],
) -> None:
    compared = [a for a in read[1] if a.agreement.compared != "nothing" and a.calls >= 5]
    assert len(compared) > 20
    agree = [audit for audit in compared if audit.agreement.agrees]
    assert len(agree) >= 0.75 * len(compared)
    for audit in compared:
        assert audit.agreement.agrees or audit.agreement.why, audit.path


def test_published_figures_hold_for_long_traces_only(
    read: tuple[Reading, list[TraceAudit]],
) -> None:
    reads = next(claim for claim in claims_of(read[1]) if claim.name.startswith("KV reads"))
    medians = [spread.p50 for _, spread in reads.by_length if spread]
    assert medians == sorted(medians)
    assert medians[0] == pytest.approx(0.24, abs=0.05)
    assert medians[-1] == pytest.approx(0.69, abs=0.1)
    density = next(claim for claim in claims_of(read[1]) if claim.name.startswith("tokens per"))
    assert density.all is not None
    assert 1.15 < density.all.p50 < 1.45
