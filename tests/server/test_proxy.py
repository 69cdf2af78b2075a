"""The proxy against recorded requests: what upstream gets, and what comes back."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from serving import Served, running, service, serving, turns
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from akv_rsi.errors import CapabilityError, ConfigError
from akv_rsi.policies import library
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.server.proxy import FAILED, OpsWriter, build_proxy
from akv_rsi.tasks.reference.model import MODEL_DIR
from akv_rsi.tasks.template import ChatTemplate

WIRE = json.loads((Path(__file__).parent / "wire.json").read_text())
ROLLING = library.spec("rolling_drop", keep=1)


class Upstream:
    """Records what it is sent, and answers as it is told to."""

    def __init__(self) -> None:
        self.seen: list[tuple[Request, bytes]] = []
        self.app = Starlette(
            routes=[Route("/{path:path}", self.answer, methods=["GET", "POST", "DELETE"])]
        )

    async def answer(self, request: Request) -> Response:
        self.seen.append((request, await request.body()))
        if request.query_params.get("stream"):

            async def pieces() -> Any:
                for piece in (b"data: 1\n\n", b"data: [DONE]\n\n"):
                    yield piece

            return StreamingResponse(pieces(), media_type="text/event-stream")
        return Response(b'{"teapot": true}', 418, {"x-upstream": "yes"}, "application/json")


@pytest.fixture(scope="module")
def upstream() -> Iterator[tuple[Upstream, str]]:
    up = Upstream()
    with (
        running(up.app) as behind,
        running(build_proxy(behind, OpsWriter(ROLLING, 448), 10_000)) as u,
    ):
        yield up, u


@pytest.mark.parametrize("example", WIRE, ids=lambda example: example["name"])
def test_recorded_requests_get_their_ops(upstream: tuple[Upstream, str], example: dict) -> None:
    up, url = upstream
    httpx2.post(f"{url}/v1/chat/completions", json=example["request"])
    sent = json.loads(up.seen[-1][1])
    assert sent == example["request"] | example["added"]


def test_everything_else_goes_through_as_it_is(upstream: tuple[Upstream, str]) -> None:
    up, url = upstream
    headers = {"authorization": "Bearer k", "x-own": "1"}
    answer = httpx2.request(
        "DELETE", f"{url}/v1/files/a%20b?q=1&q=2", headers=headers, content=b"\xff"
    )
    request, body = up.seen[-1]
    assert (answer.status_code, answer.content) == (418, b'{"teapot": true}')
    assert answer.headers["x-upstream"] == "yes"
    assert (request.method, request.url.path, request.url.query) == (
        "DELETE",
        "/v1/files/a b",
        "q=1&q=2",
    )
    assert (request.headers["authorization"], request.headers["x-own"]) == ("Bearer k", "1")
    assert body == b"\xff"
    for odd in (b"{", b"[]", b'{"messages": [{"role": "robot"}]}'):
        httpx2.post(f"{url}/v1/chat/completions", content=odd)
        assert up.seen[-1][1] == odd
    assert httpx2.post(f"{url}/v1/x?stream=1").text == "data: 1\n\ndata: [DONE]\n\n"


def test_a_body_beyond_the_limit_is_413(upstream: tuple[Upstream, str]) -> None:
    up, url = upstream
    before = len(up.seen)
    answer = httpx2.post(f"{url}/v1/chat/completions", content=b"x" * 20_000)
    assert answer.status_code == 413
    assert len(up.seen) == before


def test_a_policy_that_fails_leaves_the_request_alone_and_says_so() -> None:
    source = library.spec("full").source.split("def policy")[0] + (
        "def policy(ctx: Context) -> None:\n    ctx.segments[99]\n"
    )
    up = Upstream()
    ops = OpsWriter(PolicySpec("broken", source=source), 448)
    with running(up.app) as behind, running(build_proxy(behind, ops, 10_000)) as url:
        request = {"messages": turns(2)}
        answer = httpx2.post(f"{url}/v1/chat/completions", json=request)
        assert "IndexError" in answer.headers[FAILED]
        assert json.loads(up.seen[-1][1]) == request


def test_no_upstream_is_a_502() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with running(build_proxy(f"http://127.0.0.1:{port}", OpsWriter(ROLLING, 448), 10_000)) as url:
        answer = httpx2.get(f"{url}/v1/models")
        assert answer.status_code == 502
        assert "does not answer" in answer.json()["error"]["message"]


def test_what_a_proxy_cannot_run_is_refused() -> None:
    with pytest.raises(ConfigError, match="edits the text"):
        OpsWriter(library.spec("trim"), 448)
    refresh = library.spec("rolling_drop_refresh")
    with pytest.raises(CapabilityError, match="refresh"):
        OpsWriter(refresh, 448)
    OpsWriter(refresh, 448, ChatTemplate.load(MODEL_DIR)).close()


def test_proxy_and_server_come_to_the_same_ops(rolling: Served) -> None:
    """The proxy in front of a plain server is the policy on the server."""
    asked: dict[str, Any] = {"messages": turns(5, "proxy"), "model": "reference", "max_tokens": 3}
    template = ChatTemplate.load(MODEL_DIR)
    with (
        serving(service()) as behind,
        running(build_proxy(behind.url, OpsWriter(ROLLING, 448, template), 100_000)) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        answers = [
            c.chat.completions.create(temperature=0, **asked) for c in (client, rolling.client())
        ]
        histories = [
            served.service.sessions.get(answer.model_extra["akv"]["session"], "").history
            for served, answer in zip((behind, rolling), answers, strict=True)
        ]
    assert histories[0] == histories[1]
    assert len(histories[0]) >= 3
    assert answers[0].choices[0].message.content == answers[1].choices[0].message.content
