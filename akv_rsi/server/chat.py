"""From a job to an HTTP answer, whole or streamed, while the client is there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from akv_rsi.errors import AkvError
from akv_rsi.server.generation import Generation, Piece
from akv_rsi.server.jobs import Job
from akv_rsi.server.refusal import Refusal, body_of, refusal_of
from akv_rsi.server.service import Service
from akv_rsi.server.shapes import Shape
from akv_rsi.server.wire import Asked

T = TypeVar("T")
CLIENT_GONE = 499


async def respond(
    service: Service,
    http: Request,
    tenant: str,
    asked: Asked,
    make: Callable[[], Job],
    shape: Shape,
    hold: Sequence[str],
) -> Response:
    """The answer to a request. A client that goes away takes its request with it."""
    async with AsyncExitStack() as stack:
        stack.enter_context(service.gate.entered(tenant))
        job = await service.prepare(make)
        generation = service.generation(job, hold)
        pieces = service.answer(generation)
        stack.push_async_callback(pieces.aclose)
        if not asked.stream:
            await _while_there(http, _drained(pieces))
            return JSONResponse(shape.body(generation, _usage(generation)))
        # What is refused is refused with its own status: the first piece decides.
        first = await _while_there(http, _first(pieces))
        wants_usage = asked.stream_options is not None and asked.stream_options.include_usage
        events = _events(shape, generation, first, pieces, wants_usage)
        return _Stream(events, stack.pop_all())
    raise AssertionError("the stack swallows nothing")


class _Stream(StreamingResponse):
    """A streamed answer that lets go of what it holds, even if the client never reads any of it."""

    def __init__(self, events: AsyncIterator[bytes], held: AsyncExitStack) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._held:
            await super().__call__(scope, receive, send)


async def _events(
    shape: Shape,
    generation: Generation,
    first: Piece | None,
    pieces: AsyncIterator[Piece],
    wants_usage: bool,
) -> AsyncIterator[bytes]:
    """The stream of an answer, as server-sent events."""
    job = generation.job
    for chunk in shape.first(job):
        yield _event(chunk)
    try:
        if first is not None:
            yield _event(shape.piece(first, job))
        async for piece in pieces:
            yield _event(shape.piece(piece, job))
    except AkvError as error:
        yield _event(body_of(refusal_of(error)))
        return
    for chunk in shape.last(generation):
        yield _event(chunk)
    if wants_usage:
        yield _event(shape.usage(_usage(generation), job))
    yield b"data: [DONE]\n\n"


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def _usage(generation: Generation) -> dict[str, Any]:
    assert generation.completion is not None
    return generation.job.usage(generation.completion)


async def _first(pieces: AsyncIterator[Piece]) -> Piece | None:
    return await anext(pieces, None)


async def _drained(pieces: AsyncIterator[Piece]) -> None:
    async for _ in pieces:
        pass


async def _while_there(http: Request, work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` returns; it is broken off when the client disconnects."""
    task, watch = asyncio.create_task(work), asyncio.create_task(_gone(http))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Refusal(CLIENT_GONE, "the client went away")
        return task.result()
    finally:
        watch.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


async def _gone(http: Request) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass
