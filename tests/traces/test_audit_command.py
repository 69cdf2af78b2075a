"""`akv-rsi audit`: tables, JSON, a page, and bad input."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from cases import CASES
from make import conversation, document, turn

from akv_rsi.cli import run

FEW = ["--policy", "full", "--policy", "trim:keep=2,batch=2", "--policy", "rolling_drop:keep=2"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One file of every format, a long conversation, and a file that is none."""
    place = tmp_path / "transcripts"
    place.mkdir()
    for name, make in CASES.items():
        case = make()
        (place / f"{name}-{case.name}").write_text(case.text)
    results = (f"open src/part_{k}.py line {k * 11} " * 30 for k in range(12))
    document(place / "long.json", {"messages": conversation(results)})
    (place / "README.md").write_text("# Notes\n")
    (place / ".hidden.json").write_text("{")
    return place


def audited(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["audit", *arguments, "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def test_json_of_a_folder(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    report = audited(capsys, str(folder), *FEW)
    assert report["overall"]["traces"] == len(CASES) + 1
    files = {Path(file["path"]).name: file for file in report["files"]}
    assert files["README.md"]["problems"] == [{"line": 0, "why": "no reader knows this format"}]
    assert ".hidden.json" not in files
    assert {file["format"] for file in files.values()} >= {make().reader for make in CASES.values()}
    assert [row["name"] for row in report["overall"]["policies"]] == FEW[1::2]
    long = next(trace for trace in report["traces"] if trace["path"].endswith("long.json"))
    assert {row["name"]: row["on"] for row in long["policies"]} == {
        "full": "any",
        "trim:keep=2,batch=2": "text",
        "rolling_drop:keep=2": "engine",
    }
    assert long["policies"][2]["ratio"] < 1
    assert long["replayed"] == long["calls"] == 13
    assert any("cannot drop KV" in note for note in report["notes"])
    assert any("estimates" in note for note in report["notes"])
    assert report["advice"]


def test_the_same_command_gives_the_same_report(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    one, two = (audited(capsys, str(folder / "long.json"), *FEW) for _ in range(2))
    assert one == two


def test_tables_for_people(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert run(["audit", str(folder / "long.json"), *FEW]) == 0
    out = capsys.readouterr().out
    for words in (
        "13 calls", "tool_result", "does not break even", "blind calls", "What to act on",
        "cannot drop KV", "Published figures", "Tokens are estimates", "Growth of the prompt",
    ):  # fmt: skip
        assert words in out, words
    assert "only a part" not in out
    assert run(["audit", str(folder / "long.json"), *FEW, "--work", "60"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert re.search(r"of 1 long trace only a part was replayed \(\d+ of all 13 calls\)", told)


class Balance(HTMLParser):
    """Fails on a tag that is not closed in its place."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_that_loads_nothing(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path
) -> None:
    page = tmp_path / "audit.html"
    assert run(["audit", str(folder), *FEW, "--html", str(page)]) == 0
    text = page.read_text()
    assert not re.search(r"(?:src|href)=|<script|url\(", text)
    assert text.count("<svg") >= 3
    assert "polyline" in text
    balance = Balance()
    balance.feed(text)
    assert balance.open == []
    assert "rolling_drop:keep=2" in text


def test_a_page_escapes_what_it_quotes(folder: Path, tmp_path: Path) -> None:
    evil = document(tmp_path / "<script>x.json", {"messages": conversation(["a" * 500] * 6)})
    page = tmp_path / "audit.html"
    assert run(["audit", str(evil), *FEW, "--html", str(page)]) == 0
    assert "<script>" not in page.read_text()


def test_markup_in_a_transcript_is_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    messages = [{"role": "user", "content": "task"}]
    for number in range(6):
        messages += turn(number, "x " * 200, tool="[red]look[/red]", args={"q": "[/bold] a"})
    path = document(tmp_path / "m.json", {"messages": messages})
    assert run(["audit", str(path), *FEW]) == 0
    assert "[red]look[/red]" in capsys.readouterr().out


def test_no_policies_if_there_is_no_work(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    report = audited(capsys, str(folder / "long.json"), "--work", "0")
    assert report["traces"][0]["policies"] == []
    assert report["traces"][0]["replayed"] == 0


def test_a_policy_file_and_prices_of_ones_own(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from akv_rsi.policies.dsl import Context, drop\n\n\n"
        "def policy(ctx: Context) -> None:\n"
        "    for seg in ctx.segments:\n"
        "        if seg.kind == 'tool_result' and seg.age >= 2:\n"
        "            drop(seg)\n"
    )
    prices = tmp_path / "prices.json"
    values = {"read": 0.2, "write": 1, "output": 4, "cache": {"block": 64}}
    prices.write_text(json.dumps(values))
    report = audited(
        capsys, str(folder / "long.json"), "--policy", str(mine), "--prices", str(prices)
    )
    assert report["prices"] == "prices"
    (row,) = report["traces"][0]["policies"]
    assert row["on"] == "engine"
    assert row["ratio"] < 1


def test_a_tokenizer_counts_instead_of_characters(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path
) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    tokenizer = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    arguments = [str(folder / "long.json"), "--work", "0", "--tokenizer", str(path)]
    (trace,) = audited(capsys, *arguments)["traces"]
    assert trace["unit"] == "token"
    words = next(share for share in trace["mix"] if share["name"] == "tool_result")
    assert words["tokens"] == 12 * 30 * 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing"], "does not exist"),
        (["empty"], "no files in"),
        (["zero.json"], "it is empty"),
        (["notes.txt"], "no reader knows"),
        (["noise.jsonl"], "no reader knows"),
        (["nothing.json"], "no conversation"),
        (["good.json", "--prices", "cloud"], "unknown prices"),
        (["good.json", "--policy", "cloud"], "unknown policy"),
        (["good.json", "--policy", "oracle"], "unknown policy"),
        (["good.json", "--format", "word"], "unknown format"),
        (["good.json", "--span", "0"], "--span"),
        (["good.json", "--work=-1"], "--work"),
        (["good.json", "--html", "nowhere/a.html"], "does not exist"),
        (["good.json", "--html", "empty"], "cannot be written"),
        (["good.json", "--tokenizer", "nowhere"], "does not exist"),
        (["good.json", "--tokenizer", "good.json"], "no tokenizer.json"),
        ([], "no files in"),
    ],
)
def test_bad_input_is_one_line_and_an_exit_code(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("zero.json").write_bytes(b"")
    Path("notes.txt").write_text("hello")
    Path("noise.jsonl").write_bytes(bytes(range(256)) * 40)
    document(Path("nothing.json"), {"messages": [], "resourceSpans": []})
    document(Path("good.json"), {"messages": conversation(["a" * 99] * 3)})
    assert run(["audit", *arguments, "--policy", "full"]) == 2
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if line.startswith("akv-rsi:")]
    assert len(lines) == 1
    assert words in lines[0]
    assert captured.out == ""


def test_damage_is_told_with_its_line_and_the_rest_is_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    good = CASES["claude_code"]().text.splitlines()
    path = tmp_path / "session.jsonl"
    path.write_text("\n".join([*good[:4], '{"type": "assistant", "mess', *good[4:]]) + "\n[1]\n")
    report = audited(capsys, str(path), "--work", "0")
    (file,) = report["files"]
    assert [problem["line"] for problem in file["problems"]] == [5, len(good) + 2]
    assert all(problem["why"] for problem in file["problems"])
    assert report["traces"][0]["calls"] == 3


@pytest.mark.slow
def test_a_hundred_thousand_calls(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "many.json"
    with path.open("w") as file:
        file.write('{"messages": [' + json.dumps({"role": "user", "content": "task"}))
        for number in range(100_000):
            for message in turn(number, f"ok {number}"):
                file.write("," + json.dumps(message))
        file.write("]}")
    report = audited(capsys, str(path))
    (trace,) = report["traces"]
    assert trace["calls"] == 100_000
    assert 0 < trace["replayed"] < 1000
    assert len(trace["curve"]) <= 202
