"""The examples of docs/server.md run as written, but for the port."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from serving import Served, turns

from akv_rsi.policies.executor import Limits
from akv_rsi.policies.open import read_policy
from akv_rsi.server.planner import Planner
from akv_rsi.server.segments import segments
from akv_rsi.server.service import Service
from akv_rsi.server.tenants import Tenants
from akv_rsi.server.wire import ChatRequest
from akv_rsi.types import Drop, Op, Refresh, Repos

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


@pytest.mark.parametrize("marked", [True, False], ids=["with marks", "without marks"])
def test_the_tree_drops_what_is_marked_else_what_is_old(
    idle: Service, tmp_path: Path, marked: bool
) -> None:
    file = tmp_path / "tree.py"
    file.write_text(blocks("python")[1])
    messages = turns(5)
    if marked:
        for message in messages[3::2]:
            message["content"] = (
                f"<ephemeral_observation>{message['content']}</ephemeral_observation>"
            )
    prompt = idle.jobs.chat(ChatRequest.model_validate({"messages": messages}), "").prompt

    def groups(span: int) -> list[list[type[Op]]]:
        planner = Planner(replace(read_policy(file), tunables=(("keep", 2),)), span, Limits())
        plan = planner.plan("s", segments(prompt))
        planner.close()
        return [[type(op) for op in group] for group in plan.decided.groups]

    assert groups(1000) == [[]] * 6
    # Marks go as soon as they are of an earlier turn; what has none stays two turns.
    assert groups(20)[2:] == (
        [[Drop, Repos, Refresh]] * 4 if marked else [[], *[[Drop, Repos, Refresh]] * 3]
    )
