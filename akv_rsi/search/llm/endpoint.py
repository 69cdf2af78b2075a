"""One LLM call over HTTP: bounded in time and size, tried again where that can help.

The key is read from the environment for each client and goes into its header alone: no message,
error or record of ours holds it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx2
import openai
from openai.types.chat import ChatCompletion

from akv_rsi.errors import ConfigError

Mode = Literal["json_schema", "json_object", "fenced", "grammar"]
Failure = Literal["refused", "busy", "timeout", "unreachable", "too large", "malformed", "empty"]
# What another try may cure. The others cost their proposal and nothing more.
PASSING = frozenset({"busy", "timeout", "unreachable"})
# These may have been billed although nothing usable came back.
BILLED = frozenset({"timeout", "too large", "malformed", "empty"})


@dataclass(frozen=True, slots=True)
class Limits:
    """What one answer may take: seconds in all, bytes on the wire, sampled tokens; and tries."""

    seconds: float = 120.0
    size: int = 1 << 20
    tokens: int = 2048
    tries: int = 4
    wait: float = 1.0  # seconds before the second try; doubled each time, or what the server asks


@dataclass(frozen=True, slots=True)
class Model:
    """A model at an endpoint. ``price_in`` and ``price_out`` are dollars per million tokens.

    ``grammar`` says that the server can hold programs to a grammar, as vLLM can.
    """

    name: str
    url: str
    key_env: str = ""
    price_in: float = 0.0
    price_out: float = 0.0
    grammar: bool = False

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"--llm-base-url must begin with http:// or https://: {self.url!r}")
        if parts.username or parts.password or parts.query:
            raise ConfigError("--llm-base-url must hold no key: name a variable with --llm-key-env")
        if min(self.price_in, self.price_out) < 0:
            raise ConfigError("LLM prices must not be negative")

    def key(self) -> str:
        """The key, from the environment; endpoints on this machine need none."""
        if not self.key_env:
            return "none"
        if not (key := os.environ.get(self.key_env)):
            raise ConfigError(f"--llm-key-env {self.key_env}: the variable is not set")
        return key

    def dollars(self, tokens_in: int, tokens_out: int) -> float:
        """What so many tokens cost."""
        return (tokens_in * self.price_in + tokens_out * self.price_out) / 1e6


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of a call: its text, or why there is none; tokens over all tries; tries made."""

    text: str = ""
    failure: Failure | Literal[""] = ""
    detail: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    tries: int = 1


class Broken(Exception):  # inside this module
    """One try failed."""

    def __init__(self, failure: Failure, detail: str = "", wait: float | None = None) -> None:
        super().__init__(detail)
        self.failure, self.detail, self.wait = failure, detail, wait


@dataclass(slots=True)
class Endpoint:
    """Asks one model. ``sleep`` is for tests; without a ``temperature`` the server chooses."""

    model: Model
    limits: Limits = field(default_factory=Limits)
    sleep: Callable[[float], None] = time.sleep
    temperature: float | None = None

    def ask(
        self, system: str, user: str, mode: Mode, schema: dict[str, Any], tokens: int = 0
    ) -> Reply:
        """The model's answer of up to ``tokens`` (0: the limit); a failure is a `Reply` too."""
        most, spent_in, spent_out = estimate(system, user), 0, 0
        longest = tokens or self.limits.tokens
        for attempt in range(1, self.limits.tries + 1):
            try:
                answer = self._once(system, user, mode, schema, longest)
            except Broken as broken:
                if broken.failure in BILLED:
                    spent_in, spent_out = spent_in + most, spent_out + longest
                last = Reply("", broken.failure, broken.detail, spent_in, spent_out, attempt)
                if broken.failure not in PASSING or attempt == self.limits.tries:
                    return last
                pause = self.limits.wait * 2 ** (attempt - 1)
                self.sleep(min(max(pause, broken.wait or 0.0), self.limits.seconds))
                continue
            usage = answer.usage
            spent_in += usage.prompt_tokens if usage else most
            spent_out += usage.completion_tokens if usage else longest
            text = answer.choices[0].message.content if answer.choices else None
            failure: Failure | Literal[""] = "" if text and text.strip() else "empty"
            return Reply(text or "", failure, "", spent_in, spent_out, attempt)
        raise AssertionError("a call has at least one try")

    def _once(
        self, system: str, user: str, mode: Mode, schema: dict[str, Any], tokens: int
    ) -> ChatCompletion:
        limits, began = self.limits, time.monotonic()
        client = openai.OpenAI(
            api_key=self.model.key(),
            base_url=self.model.url,
            max_retries=0,
            timeout=httpx2.Timeout(limits.seconds, connect=min(10.0, limits.seconds)),
        )
        body = bytearray()
        try:
            with (
                client,
                client.chat.completions.with_streaming_response.create(
                    model=self.model.name,
                    messages=[
                        {"role": "system", "content": system},
                        {"role": "user", "content": user},
                    ],
                    max_tokens=tokens,
                    temperature=openai.omit if self.temperature is None else self.temperature,
                    **_format(mode, schema),
                ) as response,
            ):
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > limits.size:
                        raise Broken("too large", f"more than {limits.size} bytes")
                    if time.monotonic() - began > limits.seconds:
                        raise Broken("timeout", f"no end after {limits.seconds:g} s")
            return ChatCompletion.model_validate_json(bytes(body))
        except openai.APITimeoutError as error:
            raise Broken("timeout", f"no answer after {limits.seconds:g} s") from error
        except openai.APIConnectionError as error:
            raise Broken("unreachable", type(error.__cause__ or error).__name__) from error
        except openai.APIStatusError as error:
            raise _refusal(error) from error
        except httpx2.TimeoutException as error:
            raise Broken("timeout", "the answer stopped half-way") from error
        except httpx2.HTTPError as error:
            raise Broken("unreachable", type(error).__name__) from error
        except ValueError as error:
            raise Broken("malformed", "the answer is no chat completion") from error


def unusable(endpoint: Endpoint, why: str) -> ConfigError:
    """The error that a model cannot be asked at all, with what may help."""
    model = endpoint.model
    locked = why.startswith(("refused HTTP 401", "refused HTTP 403"))
    hint = "; name the variable that holds its key with --llm-key-env" if locked else ""
    return ConfigError(f"--llm {model.name} at {model.url}: {why}{hint}")


def estimate(*texts: str) -> int:
    """At most so many tokens, as a rule: three bytes each."""
    return sum(len(text.encode()) // 3 + 8 for text in texts)


def _format(mode: Mode, schema: dict[str, Any]) -> dict[str, Any]:
    if mode == "json_schema":
        named = {"name": schema.get("title", "answer"), "schema": schema, "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": named}}
    if mode == "grammar":
        return {"extra_body": {"structured_outputs": {"grammar": schema["grammar"]}}}
    return {"response_format": {"type": "json_object"}} if mode == "json_object" else {}


def _refusal(error: openai.APIStatusError) -> Broken:
    """An HTTP error; its body may repeat the request, so only the status is told."""
    status = error.status_code
    if status not in (408, 409, 429) and status < 500:
        return Broken("refused", f"HTTP {status}")
    try:
        wait = float(error.response.headers.get("retry-after", 0))
    except ValueError:
        wait = 0.0
    return Broken("busy", f"HTTP {status}", wait)
