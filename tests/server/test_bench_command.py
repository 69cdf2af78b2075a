"""`akv-rsi bench serve` on recorded transcripts, with a shape instead of a model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "traces"))
from make import conversation, document

from akv_rsi.cli import run
from akv_rsi.config import EngineConfig
from akv_rsi.engine.bench import shape
from akv_rsi.engine.request import Request
from akv_rsi.tasks.load import shaped_engine
from akv_rsi.tasks.reference.model import MODEL_DIR
from akv_rsi.tasks.template import ChatTemplate

TINY = shape.LLAMA_8B | {
    "vocab_size": 1000,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
CALLS, ANSWER = 4, 3


@pytest.fixture(autouse=True)
def _shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape, "SHAPES", {"tiny": TINY, "small": TINY | {"vocab_size": 100}})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two transcripts whose results are long."""
    made = tmp_path_factory.mktemp("traces")
    for name in ("saved", "open"):
        results = [f"{name} {number} " * 40 for number in range(CALLS)]
        document(made / f"{name}.json", {"messages": conversation(results)})
    return made


def measured(capsys: pytest.CaptureFixture[str], folder: Path, *more: str) -> list[dict[str, Any]]:
    line = ["bench", "serve", "--shape", "tiny", "--traces", str(folder), "--runs", "2", "--json"]
    line += ["--concurrency", "2", "--delay", "0", "--answer", str(ANSWER), *more]
    assert run(line) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
    return rows


def test_recorded_results_are_replayed_and_dropped(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    policies = ["--policy", "full", "--policy", "rolling_drop_refresh:keep=1"]
    full, dropped = measured(capsys, folder, *policies, "--pages", "512")
    assert full["calls"] == dropped["calls"] == 2 * (CALLS + 1)
    assert full["computed_tokens"] > 2 * CALLS * 80
    assert full["hit_share"] > 0.5
    assert dropped["refreshed_tokens"] > 0
    assert dropped["cost_per_run"] < full["cost_per_run"]


def test_text_is_edited_where_the_span_says(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    wide, narrow = (
        measured(capsys, folder, "--policy", "truncate:target=0.9", "--span", span)[0]
        for span in ("100000", "500")
    )
    assert narrow["hit_share"] < wide["hit_share"]


def test_answers_of_a_shape_are_text_and_end_where_they_were_asked_to() -> None:
    engine = shaped_engine("tiny", MODEL_DIR, EngineConfig(pages=64))
    template = ChatTemplate.load(MODEL_DIR)
    words = set(template.words())
    assert not words & template.stops()
    for start in range(8):
        asked = Request([start, 5, 7], max_new_tokens=16, stop=template.stops())
        (answer,) = engine.generate([asked])
        assert len(answer.tokens) == 16
        assert set(answer.tokens) <= words


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--pages", "8"], "there are pages for 128: use more --pages"),
        (["--runs", "3"], "2 conversations in"),
        (["--suite", "repo"], "--suite or --traces"),
        (["--shape", "9b"], "unknown shape '9b': use tiny"),
        (["--shape", "small"], "fewer than the tokenizer"),
        pytest.param(
            ["--device", "cuda"],
            "no CUDA device",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is one"),
        ),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_what_cannot_be_measured_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str], folder: Path, more: list[str], said: str
) -> None:
    given = {"--shape": "tiny", "--traces": str(folder), "--runs": "2", "--concurrency": "2"}
    given |= dict(zip(more[::2], more[1::2], strict=True))
    assert run(["bench", "serve", *(part for pair in given.items() for part in pair)]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
