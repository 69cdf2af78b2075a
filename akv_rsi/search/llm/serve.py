"""`--llm vllm:PATH_OR_ID`: a vLLM server of our own, for as long as the search asks it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

from akv_rsi.errors import ConfigError
from akv_rsi.search.config import SearchConfig

LOCAL = "vllm:"
# The interpreter of the environment that has vLLM; without it the current one is used.
PYTHON = "AKV_RSI_VLLM_PYTHON"
READY_S, POLL_S, STOP_S = 600.0, 0.25, 15.0
_SUPERVISOR = Path(__file__).with_name("supervise.py")


@contextmanager
def serving(config: SearchConfig) -> Iterator[SearchConfig]:
    """The configuration with its local model served; as it is, if it names none.

    The server listens on this machine only, and is stopped whatever happens. `ConfigError` when it
    does not come up.
    """
    local = [name for name in config.llm if name.startswith(LOCAL)]
    if not local:
        yield config
        return
    if len(config.llm) > 1:
        raise ConfigError(f"--llm {local[0]} is served alone: start other servers by hand")
    model = local[0].removeprefix(LOCAL)
    port = _free_port()
    command = [os.environ.get(PYTHON, sys.executable), "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", model, "--host", "127.0.0.1", "--port", str(port), "--enforce-eager"]
    with running(command, f"http://127.0.0.1:{port}") as url:
        yield replace(
            config, llm=(model,), llm_base_url=f"{url}/v1", llm_key_env="", llm_grammar=True
        )


@contextmanager
def running(command: Sequence[str], url: str, ready_s: float = READY_S) -> Iterator[str]:
    """``url``, once the server that ``command`` starts is healthy there."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, str(_SUPERVISOR), *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        )
        try:
            _wait(process, url, ready_s, log)
            yield url
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(process: subprocess.Popen[bytes], url: str, ready_s: float, log: IO[str]) -> None:
    deadline = time.monotonic() + ready_s
    while not _healthy(url):
        if process.poll() is not None:
            raise ConfigError(f"the LLM server ended with code {process.returncode}: {_tail(log)}")
        if time.monotonic() > deadline:
            raise ConfigError(f"the LLM server is not healthy after {ready_s:g} s: {_tail(log)}")
        time.sleep(POLL_S)


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _tail(log: IO[str]) -> str:
    """The last line that the server wrote."""
    log.seek(0)
    lines = [line.strip() for line in log.read().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it wrote nothing"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
