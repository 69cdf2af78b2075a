"""`akv-rsi proxy`: a policy's cache ops for a server that takes them."""

from __future__ import annotations

from akv_rsi.cli.names import policy_named
from akv_rsi.cli.output import listening
from akv_rsi.errors import ConfigError


def proxy(
    *,
    policy: str,
    upstream: str,
    model: str | None = None,
    reliable_span: int = 32_768,
    host: str = "127.0.0.1",
    port: int = 8101,
    drain_seconds: int = 30,
    json: bool = False,
) -> None:
    """Add the cache ops of a policy to chat requests on their way to a server.

    Everything else goes through as it is, streams included. See docs/server.md.

    Args:
        policy: A policy of cache ops, such as rolling_drop:keep=3, or a file.
        upstream: The server: an AKV-SGLang one, or akv-rsi serve; without /v1.
        model: Upstream's model, for policies that count tokens: a folder or a hub id. Only its
            tokenizer is read.
        reliable_span: Of upstream's model, in positions; a model of its own tells it.
        host: The address to listen on.
        port: The port to listen on; 0 takes a free one.
        drain_seconds: How long a shutdown waits for answers in work.
        json: Print where it listens as JSON, once it does.
    """
    from akv_rsi.server.launch import bound, open_proxy, run

    if not upstream.startswith(("http://", "https://")):
        raise ConfigError(f"{upstream!r} is no address: write http://HOST:PORT")
    spec = policy_named(policy, oracle=False)
    base = upstream.rstrip("/").removesuffix("/v1")
    told = listening("passing on", {"upstream": base, "policy": policy}, json)
    with bound(host, port) as listener:
        run(open_proxy(spec, base, model, reliable_span), listener, drain_seconds, told)
