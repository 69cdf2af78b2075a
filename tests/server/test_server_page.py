"""The examples of docs/server.md run as written, but for the port."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from serving import Served

from akv_rsi.server.tenants import Tenants

PAGE = (Path(__file__).parents[2] / "docs" / "server.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def here(text: str, served: Served) -> str:
    assert "http://127.0.0.1:8100" in text
    return text.replace("http://127.0.0.1:8100", served.url)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_curl_example_drops_a_message(plain: Served) -> None:
    command = here(blocks("sh")[0], plain)
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=True, timeout=120)
    details = json.loads(done.stdout)["usage"]["prompt_tokens_details"]
    assert details["drop_skipped_tokens"] == 4


def test_the_python_example_runs(plain: Served) -> None:
    program = here(blocks("python")[0], plain)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert b"drop_skipped_tokens" in done.stdout


def test_the_key_file_example_is_read(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(blocks("json")[0])
    tenants = Tenants.load(file)
    assert tenants.of("Bearer foo") == "ada"
    assert tenants.limits("ada").max_in_work == 8
