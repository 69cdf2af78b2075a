"""Refuses bodies beyond a size, before and while they are read."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimit:
    """A body of more than ``most`` bytes is a 413, raised where the application reads it.

    The framework has such a limit, but answers in plain text, which OpenAI's clients do not read.
    """

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, its body bounded."""
        size = 0
        if scope["type"] == "http":
            told = Headers(scope=scope).get("content-length", "")
            size = int(told) if told.isdigit() else 0
        read = 0

        async def bounded() -> Message:
            nonlocal read
            message = {} if size > self._most else await receive()
            read += len(message.get("body", b""))
            if max(size, read) > self._most:
                raise HTTPException(413, f"the body is larger than {self._most} bytes: send less")
            return message

        await self._app(scope, bounded, send)
