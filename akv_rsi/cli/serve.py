"""`akv-rsi serve`: an OpenAI-compatible server with cache engineering."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from akv_rsi.cli.names import policy_named
from akv_rsi.cli.output import listening
from akv_rsi.config import EngineConfig
from akv_rsi.errors import ConfigError
from akv_rsi.policies.executor import Limits
from akv_rsi.server.limits import ServerConfig
from akv_rsi.server.tenants import Tenants


def serve(
    *,
    model: str = "reference",
    host: str = "127.0.0.1",
    port: int = 8100,
    pages: int = 8192,
    page_size: int = 16,
    threads: int = 0,
    device: Literal["cpu", "cuda"] = "cpu",
    api_keys: Path | None = None,
    policy: str | None = None,
    policy_seconds: float = 1.0,
    keep_ephemeral_tags: bool = False,
    answer_tokens: int = 512,
    max_messages: int = 4000,
    max_in_work: int = 256,
    drain_seconds: int = 30,
    json: bool = False,
) -> None:
    """Serve a model to OpenAI clients, with cache ops in requests or by a policy.

    The server keeps no state that an answer depends on: each request brings the conversation and
    all cache ops so far. See docs/server.md.

    Args:
        model: reference, a folder with a model, a .gguf file, or a hub id.
        host: The address to listen on.
        port: The port to listen on; 0 takes a free one.
        pages: Pages of KV.
        page_size: Tokens of a page.
        threads: Threads of the engine; 0 leaves it to torch.
        device: Where the model runs: in single precision on cpu, in bfloat16 on cuda.
        api_keys: A JSON file of tenants and the SHA-256 digests of their keys. Without it everyone
            may ask.
        policy: A policy of cache ops for requests that bring none, such as rolling_drop:keep=3, or
            a file.
        policy_seconds: How long one decision of the policy may take; past that it takes no part.
        keep_ephemeral_tags: Leave the tags of ephemeral text in the prompt.
        answer_tokens: The length of answers to requests that ask for none.
        max_messages: Messages of a request; more are refused with 400.
        max_in_work: Requests that run or wait; more are turned away with 429.
        drain_seconds: How long a shutdown waits for answers in work.
        json: Print where it listens as JSON, once it does.
    """
    from akv_rsi.server.app import build_app
    from akv_rsi.server.launch import bound, open_service, run

    if policy_seconds <= 0:
        raise ConfigError(f"policy_seconds is {policy_seconds:g}: it must be above 0")
    engine = EngineConfig(
        pages=pages,
        page_size=page_size,
        threads=threads,
        device=device,
        dtype="float32" if device == "cpu" else "bfloat16",
    )
    config = replace(
        ServerConfig(),
        answer_tokens=answer_tokens,
        max_messages=max_messages,
        max_in_work=max_in_work,
        ephemeral_tags=keep_ephemeral_tags,
        drain_seconds=drain_seconds,
    )
    tenants = Tenants.load(api_keys) if api_keys is not None else Tenants()
    spec = policy_named(policy, oracle=False) if policy is not None else None
    limits = replace(Limits(), seconds=policy_seconds)
    told = listening("serving", {"model": model, "policy": policy}, json)
    with bound(host, port) as listener:
        service = open_service(model, engine, config, tenants, spec, limits)
        run(build_app(service), listener, drain_seconds, told)
