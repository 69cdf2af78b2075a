"""From a model's name to a server that runs."""

from __future__ import annotations

import socket
import sys
from dataclasses import replace

from starlette.types import ASGIApp

from akv_rsi.config import EngineConfig
from akv_rsi.errors import ConfigError
from akv_rsi.policies.executor import Limits
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.server.app import build_app
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
    folder, span = find_span(model)
    planner = Planner(policy, span, limits or Limits()) if policy is not None else None
    template = ChatTemplate.load(folder)
    return Service(model, load_engine(folder, engine), template, config, tenants, planner)


def launch(
    model: str,
    engine: EngineConfig,
    config: ServerConfig,
    tenants: Tenants,
    policy: PolicySpec | None,
    policy_seconds: float,
    address: str,
    port: int,
) -> None:
    """Serves ``model`` until a signal ends it."""
    limits = replace(Limits(), seconds=policy_seconds)
    service = open_service(model, engine, config, tenants, policy, limits)
    _run(build_app(service), f"serving {model}", address, port, config.drain_seconds)


def launch_proxy(
    policy: PolicySpec,
    upstream: str,
    model: str | None,
    span: int,
    address: str,
    port: int,
    drain_seconds: int,
) -> None:
    """Serves the proxy until a signal ends it; ``model`` is whose tokens a policy counts."""
    template: ChatTemplate | None = None
    if model is not None:
        folder, span = find_span(model)
        template = ChatTemplate.load(folder)
    ops = OpsWriter(policy, span, template)
    app = build_proxy(upstream, ops, ServerConfig().max_body)
    _run(app, f"passing {policy.name} on to {upstream}", address, port, drain_seconds)


def _run(app: ASGIApp, what: str, address: str, port: int, drain_seconds: int) -> None:
    """Runs an application on a port; `ConfigError` when the port cannot be had."""
    try:
        listener = socket.create_server((address, port), backlog=BACKLOG)
    except OSError as error:
        raise ConfigError(f"cannot listen on {address}:{port}: {error.strerror}") from error
    with listener:
        where = f"http://{address}:{listener.getsockname()[1]}/v1"
        print(f"{what}: {where}", file=sys.stderr, flush=True)
        host(app, drain_seconds).run([listener])
