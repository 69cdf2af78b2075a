"""Every refusal, as a status and the JSON body that OpenAI's clients understand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel

from akv_rsi.errors import AkvError, ConfigError, ContextLimit, OpError


class ErrorDetail(BaseModel):
    """What went wrong, in words that say what to do; ``code`` is for programs."""

    message: str
    type: str
    code: str | None = None
    param: str | None = None


class ErrorBody(BaseModel):
    """The body of every answer that is no success."""

    error: ErrorDetail


class Refusal(AkvError):
    """A request that is answered with ``status`` and no completion."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def refusal_of(error: AkvError) -> Refusal:
    """The answer to what our layers raise: the client's fault, or (500) ours."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, OpError):
        return Refusal(400, str(error), "invalid_cache_op")
    if isinstance(error, ContextLimit):
        return Refusal(400, str(error), "context_length_exceeded")
    if isinstance(error, ConfigError):
        return Refusal(400, str(error))
    return Refusal(500, str(error), "engine_error")


def body_of(refusal: Refusal) -> dict[str, Any]:
    """The JSON body of a refusal."""
    kinds = {401: "authentication_error", 413: "request_too_large", 429: "rate_limit_error"}
    fallback = "server_error" if refusal.status >= 500 else "invalid_request_error"
    kind = kinds.get(refusal.status, fallback)
    return ErrorBody(
        error=ErrorDetail(message=str(refusal), type=kind, code=refusal.code)
    ).model_dump()


def response_of(refusal: Refusal) -> JSONResponse:
    """The HTTP answer of a refusal; where trying again helps, it says when."""
    headers: Mapping[str, str] = {"Retry-After": "1"} if refusal.status in (429, 503) else {}
    return JSONResponse(body_of(refusal), refusal.status, dict(headers))
