"""What cannot be served is refused before weights are loaded, in one line."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import torch

from akv_rsi.cli import run

BAD = {
    "--model nope": "unknown model 'nope'",
    "--port 99999": "port 99999 does not exist",
    "--pages 0": "pages must be at least 1",
    "--answer-tokens 0": "answer_tokens is 0",
    "--max-messages 0": "max_messages is 0",
    "--max-in-work -1": "max_in_work is -1",
    "--policy-seconds 0": "policy_seconds is 0",
    "--drain-seconds -1": "drain_seconds is -1",
    "--policy nope": "unknown policy 'nope'",
    "--policy nope.py": "cannot be read",
    "--policy trim": "edits the text",
    "--policy attention_mass": "attention",
    "--api-keys nope.json": "cannot be read",
}


@pytest.mark.parametrize("options", BAD)
def test_bad_options_are_told_in_one_line(options: str, capsys: pytest.CaptureFixture) -> None:
    assert run(["serve", *options.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert BAD[options] in line


@pytest.mark.parametrize(
    ("source", "says"), [("import os\n", "line 1"), ("def policy(ctx): drop(\n", "line 1")]
)
def test_a_bad_policy_file_names_its_line(
    source: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "bad.py").write_text(source)
    assert run(["serve", "--policy", str(tmp_path / "bad.py")]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--policy rolling_drop --upstream localhost:1", "write http://HOST:PORT"),
        ("--policy rolling_drop_refresh --upstream http://localhost:1", "needs"),
        ("--policy trim --upstream http://localhost:1", "edits the text"),
    ],
)
def test_a_proxy_is_refused_likewise(
    options: str, says: str, capsys: pytest.CaptureFixture
) -> None:
    assert run(["proxy", *options.split()]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_a_missing_gpu_is_told(capsys: pytest.CaptureFixture) -> None:
    assert run(["serve", "--port", "0", "--device", "cuda"]) == 2
    assert "no CUDA device here: use --device cpu" in capsys.readouterr().err


def test_a_port_in_use_is_told(capsys: pytest.CaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for command in ("serve", "proxy --policy rolling_drop --upstream http://localhost:1"):
            assert run([*command.split(), "--port", str(port)]) == 2
            assert f"127.0.0.1:{port}: Address already in use" in capsys.readouterr().err
