"""What a server lets its clients do, and what a tenant may."""

from __future__ import annotations

from dataclasses import dataclass, fields

from akv_rsi.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Limits of one server. Sizes are bytes, messages, ops, tokens, requests or seconds.

    ``max_in_work`` requests run or wait; more are turned away with 429. An answer that asks for no
    length gets ``answer_tokens``. ``ephemeral_tags`` says whether the tags that mark ephemeral text
    are part of the prompt. ``drain_seconds`` is how long a shutdown waits for answers in work.
    """

    max_body: int = 16 << 20
    max_messages: int = 4000
    max_ops: int = 2000
    max_in_work: int = 256
    answer_tokens: int = 512
    kept_sessions: int = 1024
    kept_session_tokens: int = 1 << 20
    kept_answers: int = 16_384
    ephemeral_tags: bool = False
    drain_seconds: int = 30

    def __post_init__(self) -> None:
        for field in fields(self):
            least = 0 if field.name == "drain_seconds" else 1
            if field.name != "ephemeral_tags" and (value := getattr(self, field.name)) < least:
                raise ConfigError(f"{field.name} is {value}: it must be at least {least}")


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """What one tenant may do: requests at once, and tokens of prompt and answer in one of them."""

    max_in_work: int = 64
    max_context: int = 1 << 20

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or value < 1:
                raise ConfigError(
                    f"the tenant limit {field.name} is {value!r}: use a whole number above 0"
                )
