"""A proxy that writes a policy's cache ops into chat requests, and changes nothing else.

Upstream is a server that takes such ops: AKV-SGLang, or another ``akv-rsi serve``. Requests that
bring ops of their own, that are no conversation, or before which the policy fails, go through as
they came; in the last case the answer's ``x-akv-policy-error`` says so.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx2
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from akv_rsi.errors import AkvError, ConfigError
from akv_rsi.policies.open import open_policy
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.policies.wire import Payload, check_client, prepare_by
from akv_rsi.server.bounds import BodyLimit
from akv_rsi.server.refusal import Refusal, body_of
from akv_rsi.server.wire import ChatRequest
from akv_rsi.tasks.template import ChatTemplate

FAILED = "x-akv-policy-error"
_CHAT = "/v1/chat/completions"
_OPS = ("drop_message", "reposition", "drop_rule", "cache_ops")
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
# What is said of one connection, not of the message.
_HOP = frozenset(
    "connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding "
    "upgrade host content-length".split()
)


class Prepared(NamedTuple):
    """A body to send on, and why the policy took no part, if it failed."""

    body: bytes
    failure: str | None = None


class OpsWriter:
    """Writes what a policy decides, made in a sandbox. It is used by one thread."""

    def __init__(
        self, spec: PolicySpec, reliable_span: int, template: ChatTemplate | None = None
    ) -> None:
        """``template`` is upstream's: policies that count tokens need it.

        Raises `CapabilityError` for a policy that needs more than a client knows, and `ConfigError`
        for one that edits the text.
        """
        if spec.kind != "program":
            raise ConfigError(f"{spec.name} edits the text: a proxy only adds cache ops")
        self._policy = open_policy(spec)
        self._span = reliable_span
        self._template = template
        check_client(self._policy.capabilities, template is not None)

    def prepare(self, body: bytes) -> Prepared:
        """The body of a chat request with the ops of all its calls."""
        try:
            payload = json.loads(body)
            ChatRequest.model_validate(payload)
        except (ValueError, RecursionError, ValidationError):
            return Prepared(body)  # upstream says what is wrong with it
        if any(payload.get(name) for name in _OPS):
            return Prepared(body)
        try:
            written = self._written(payload)
        except AkvError as error:
            return Prepared(body, str(error))
        return Prepared(json.dumps(written).encode())

    def close(self) -> None:
        """Ends the sandbox."""
        self._policy.close()

    def _written(self, payload: Payload) -> Payload:
        decide, needs, span = self._policy.decide, self._policy.capabilities, self._span
        if self._template is None:
            return prepare_by(decide, payload, needs, span)
        ends = self._template.render(payload["messages"], payload.get("tools"), False).starts

        def count(messages: Sequence[Any]) -> int:
            return ends[len(messages)]

        return prepare_by(decide, payload, needs, span, count)


def build_proxy(upstream: str, ops: OpsWriter, max_body: int) -> Starlette:
    """The proxy as an application; ``upstream`` is a base URL without ``/v1``."""
    client = httpx2.AsyncClient(base_url=upstream, timeout=httpx2.Timeout(600, connect=10))
    preparing = ThreadPoolExecutor(1, thread_name_prefix="prepare")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await client.aclose()
        preparing.shutdown()
        ops.close()

    async def forward(request: Request) -> Response:
        body, failure = await request.body(), None
        if request.method == "POST" and request.url.path == _CHAT:
            loop = asyncio.get_running_loop()
            body, failure = await loop.run_in_executor(preparing, ops.prepare, body)
        try:
            answer = await client.send(_onward(client, request, body), stream=True)
        except httpx2.HTTPError as error:
            refusal = Refusal(502, f"{upstream} does not answer: {type(error).__name__}")
            return JSONResponse(body_of(refusal), refusal.status)
        # Raw, so that a compressed body stays what its headers say.
        response = StreamingResponse(
            answer.aiter_raw(), answer.status_code, background=BackgroundTask(answer.aclose)
        )
        for name, value in answer.headers.multi_items():
            if name.lower() not in _HOP:
                response.headers.append(name, value)
        if failure is not None:
            response.headers[FAILED] = failure.encode("ascii", "replace").decode()[:500]
        return response

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return JSONResponse(body_of(Refusal(error.status_code, error.detail)), error.status_code)

    return Starlette(
        routes=[Route("/{path:path}", forward, methods=_METHODS)],
        lifespan=lifespan,
        exception_handlers={HTTPException: refused},
        middleware=[Middleware(BodyLimit, most=max_body)],
    )


def _onward(client: httpx2.AsyncClient, request: Request, body: bytes) -> httpx2.Request:
    """The request for upstream: the same method, path, query and headers."""
    headers = [(n, v) for n, v in request.headers.items() if n.lower() not in _HOP]
    url = httpx2.URL(path=request.url.path, query=request.url.query.encode())
    return client.build_request(request.method, url, headers=headers, content=body)
