"""Real servers on loopback ports, each in a thread of this process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import httpx2
import openai

from akv_rsi.config import EngineConfig
from akv_rsi.engine.engine import Engine
from akv_rsi.engine.model import Model, load_model
from akv_rsi.policies.executor import Limits
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.server.app import build_app
from akv_rsi.server.host import host
from akv_rsi.server.limits import ServerConfig
from akv_rsi.server.planner import Planner
from akv_rsi.server.service import Service
from akv_rsi.server.tenants import Tenants
from akv_rsi.tasks.reference.model import MODEL_DIR, RELIABLE_SPAN
from akv_rsi.tasks.template import ChatTemplate

PAGES = 512
OPENING = [
    {"role": "system", "content": "you work with tools"},
    {"role": "user", "content": "find the key"},
]


class Served(NamedTuple):
    service: Service
    url: str
    clients: dict[str, openai.OpenAI]

    def client(self, key: str = "none") -> openai.OpenAI:
        if key not in self.clients:
            self.clients[key] = openai.OpenAI(
                base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=120
            )
        return self.clients[key]

    def balanced(self) -> None:
        """Once nothing is in work, every page is free or cached, and no count is off."""
        wait_until(lambda: self.service.gate.inside == 0 and self.service.runner.in_work == 0)
        answer = httpx2.get(f"{self.url}/health?deep=true")
        assert answer.status_code == 200, answer.text


@lru_cache
def model() -> Model:
    return load_model(MODEL_DIR, EngineConfig(pages=PAGES, self_test=False))


def service(
    config: ServerConfig | None = None,
    tenants: Tenants | None = None,
    policy: PolicySpec | None = None,
    limits: Limits | None = None,
    **sizes: Any,
) -> Service:
    template = ChatTemplate.load(MODEL_DIR)
    planner = Planner(policy, RELIABLE_SPAN, limits or Limits()) if policy else None
    engine = Engine(model(), EngineConfig(**{"pages": PAGES, **sizes}))
    return Service(
        "reference", engine, template, config or ServerConfig(), tenants or Tenants(), planner
    )


@contextmanager
def serving(made: Service) -> Iterator[Served]:
    with running(build_app(made)) as url:
        served = Served(made, url, {})
        yield served
    for client in served.clients.values():
        client.close()


@contextmanager
def running(app: Any) -> Iterator[str]:
    """An application on a loopback port of its own."""
    server = host(app, drain_seconds=60)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        wait_until(lambda: server.started or not thread.is_alive())
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(90)
    assert not thread.is_alive()


def wait_until(holds: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came about"
        time.sleep(0.01)


def turns(count: int, topic: str = "key") -> list[dict[str, Any]]:
    """A conversation with ``count`` calls behind it: 2 + 2 * count messages."""
    messages: list[dict[str, Any]] = [*OPENING]
    for turn in range(count):
        messages.append({"role": "assistant", "content": f"open {topic} {turn}"})
        messages.append({"role": "tool", "content": f"ready : {turn} saved", "tool_call_id": "c"})
    return messages
