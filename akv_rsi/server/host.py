"""Serves an application until it is told to stop."""

from __future__ import annotations

import uvicorn
from starlette.types import ASGIApp


def host(app: ASGIApp, drain_seconds: int) -> uvicorn.Server:
    """A server of ``app``; `run` it with the sockets to listen on.

    On SIGTERM or SIGINT it takes no more connections, and waits up to ``drain_seconds`` for answers
    in work.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,  # it would hold query strings
        ws="none",
        timeout_graceful_shutdown=drain_seconds,
    )
    return uvicorn.Server(config)
