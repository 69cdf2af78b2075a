"""From a model's name, or a policy's, to a server that runs."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.types import ASGIApp

from akv_rsi.config import EngineConfig
from akv_rsi.engine.engine import Engine
from akv_rsi.errors import ConfigError
from akv_rsi.policies.executor import Limits
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.server.host import host
from akv_rsi.server.limits import ServerConfig
from akv_rsi.server.planner import Planner
from akv_rsi.server.proxy import OpsWriter, build_proxy
from akv_rsi.server.service import Service
from akv_rsi.server.tenants import Tenants
from akv_rsi.tasks.load import find_span, load_engine
from akv_rsi.tasks.template import ChatTemplate

# Connections that wait to be taken.
BACKLOG = 512


def open_service(
    model: str,
    engine: EngineConfig,
    config: ServerConfig,
    tenants: Tenants,
    policy: PolicySpec | None = None,
    limits: Limits | None = None,
) -> Service:
    """A service with its weights loaded, not started; `AkvError` when that cannot be."""
    folder, _ = find_span(model)
    return service_on(load_engine(folder, engine), model, config, tenants, policy, limits)


def service_on(
    engine: Engine,
    model: str,
    config: ServerConfig,
    tenants: Tenants,
    policy: PolicySpec | None = None,
    limits: Limits | None = None,
    span: int | None = None,
) -> Service:
    """A service on an engine that reads the tokens of ``model``; ``span`` is what policies trust.

    By default that is the reliable span of the model.
    """
    folder, reliable = find_span(model)
    span = span or reliable
    planner = Planner(policy, span, limits or Limits()) if policy is not None else None
    template = ChatTemplate.load(folder)
    return Service(model, engine, template, config, tenants, planner)


def open_proxy(policy: PolicySpec, upstream: str, model: str | None, span: int) -> ASGIApp:
    """The proxy as an application; ``model`` is whose tokens a policy counts, and whose span."""
    template: ChatTemplate | None = None
    if model is not None:
        folder, span = find_span(model)
        template = ChatTemplate.load(folder)
    return build_proxy(upstream, OpsWriter(policy, span, template), ServerConfig().max_body)


@contextmanager
def bound(address: str, port: int) -> Iterator[socket.socket]:
    """A socket that has ``port`` (0: a free one) and does not listen yet.

    So a port that cannot be had is known before weights are loaded: `ConfigError`.
    """
    if not 0 <= port < 1 << 16:
        raise ConfigError(f"port {port} does not exist: use 1 to 65535, or 0 for a free one")
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, port))
        except OSError as error:
            raise ConfigError(f"cannot listen on {address}:{port}: {error.strerror}") from error
        yield listener


def run(
    app: ASGIApp, listener: socket.socket, drain_seconds: int, tell: Callable[[str], None]
) -> None:
    """Serves ``app`` until a signal ends it; ``tell`` gets its URL once it takes connections."""
    listener.listen(BACKLOG)
    address, port = listener.getsockname()[:2]
    tell(f"http://{f'[{address}]' if ':' in address else address}:{port}/v1")
    host(app, drain_seconds).run([listener])
