"""The routes of ``akv-rsi serve``: OpenAI's, and those that tell what the cache does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from akv_rsi.errors import AkvError
from akv_rsi.server.bounds import BodyLimit
from akv_rsi.server.chat import respond
from akv_rsi.server.refusal import ErrorBody, Refusal, refusal_of, response_of
from akv_rsi.server.service import Service
from akv_rsi.server.sessions import described
from akv_rsi.server.shapes import ChatShape, TextShape
from akv_rsi.server.toolcalls import OPEN
from akv_rsi.server.wire import ChatRequest, CompletionRequest

_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorBody, "description": "the request is at fault"},
    401: {"model": ErrorBody, "description": "no such API key"},
    404: {"model": ErrorBody, "description": "no such model or session"},
    413: {"model": ErrorBody, "description": "the body is too large"},
    429: {"model": ErrorBody, "description": "too many requests in work"},
    500: {"model": ErrorBody, "description": "the engine failed"},
    503: {"model": ErrorBody, "description": "the server cannot take requests"},
}


# A 200 is JSON, or events where the request asks for a stream.
_STREAMS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the answer; server-sent events if the request has stream: true",
        "content": {"application/json": {}, "text/event-stream": {}},
    }
}


def build_app(service: Service) -> FastAPI:
    """The application around a service, which it starts and closes."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        service.close()

    app = FastAPI(
        title="akv-rsi",
        description="A stateless, OpenAI-compatible server with cache engineering.",
        lifespan=lifespan,
        responses=_ERRORS,
    )
    app.add_middleware(BodyLimit, most=service.config.max_body)
    app.add_middleware(_Counted, service=service)
    _catch(app)
    _openai(app, service)
    _about(app, service)
    return app


def _openai(app: FastAPI, service: Service) -> None:
    @app.post("/v1/chat/completions", response_model=None, responses=_STREAMS)
    async def chat_completions(asked: ChatRequest, request: Request) -> Response:
        tenant = service.tenants.of(request.headers.get("authorization"))
        service.model(asked.model)
        calls = bool(asked.tools) and asked.tool_choice != "none"
        shape = ChatShape(service.name, calls)
        with_hold = (OPEN,) if calls else ()
        return await respond(
            service,
            request,
            tenant,
            asked,
            lambda: service.jobs.chat(asked, tenant),
            shape,
            with_hold,
        )

    @app.post("/v1/completions", response_model=None, responses=_STREAMS)
    async def completions(asked: CompletionRequest, request: Request) -> Response:
        tenant = service.tenants.of(request.headers.get("authorization"))
        service.model(asked.model)
        shape = TextShape(service.name)
        return await respond(
            service, request, tenant, asked, lambda: service.jobs.text(asked, tenant), shape, ()
        )

    @app.get("/v1/models")
    async def models(request: Request) -> dict[str, Any]:
        service.tenants.of(request.headers.get("authorization"))
        model = {"id": service.name, "object": "model", "created": 0, "owned_by": "akv-rsi"}
        return {"object": "list", "data": [model]}


def _about(app: FastAPI, service: Service) -> None:
    @app.get("/v1/sessions/{session}")
    async def sessions(session: str, request: Request) -> dict[str, Any]:
        tenant = service.tenants.of(request.headers.get("authorization"))
        found = service.sessions.get(session, tenant)
        if found is None:
            raise Refusal(404, "no such session: it is in the answer's akv.session")
        # Asking the policy for its lines takes the same thread, and as long, as a call.
        with service.gate.entered(tenant):
            return await service.prepare(lambda: described(session, found, service.jobs.planner))

    @app.get("/health")
    async def health(deep: bool = False) -> dict[str, str]:
        wrong = service.runner.failed or (await service.runner.check() if deep else None)
        if wrong is not None:
            raise Refusal(503, wrong)
        return {"status": "ok", "model": service.name}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        return Response(service.metrics.page(), media_type="text/plain; version=0.0.4")


def _catch(app: FastAPI) -> None:
    """Every error becomes one clear line; what a client sent is not repeated in it."""

    @app.exception_handler(AkvError)
    async def ours(_: Request, error: AkvError) -> JSONResponse:
        return response_of(refusal_of(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        # Of what could have stood there, the form that fits best fails deepest.
        told = max(error.errors(), key=lambda one: len(one["loc"]))
        if told["type"] == "json_invalid":
            return response_of(Refusal(400, f"the body is not JSON: {told['ctx']['error']}"))
        place = ".".join(str(part) for part in told["loc"] if part != "body")
        return response_of(Refusal(400, f"{place or 'the body'}: {told['msg']}"))

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        answer = response_of(Refusal(error.status_code, str(error.detail)))
        answer.headers.update(error.headers or {})  # such as the methods that are allowed
        return answer


class _Counted:
    """Counts the answers by their status."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._metrics = service.metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.answered(message["status"])
            await send(message)

        await self._app(scope, receive, counted)
