"""The reference agent, served on loopback ports, and the official client."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from serving import Served, service, serving

from akv_rsi.policies import library
from akv_rsi.server.service import Service


@pytest.fixture(scope="session")
def plain() -> Iterator[Served]:
    """A server without keys or a policy. Tests share it: each brings its own opening words."""
    with serving(service()) as served:
        yield served


@pytest.fixture(scope="session")
def rolling() -> Iterator[Served]:
    """A server that drops all but the latest tool result."""
    with serving(service(policy=library.spec("rolling_drop", keep=1))) as served:
        yield served


@pytest.fixture
def client(plain: Served) -> openai.OpenAI:
    return plain.client()


@pytest.fixture
def idle() -> Iterator[Service]:
    """A service that is not started: only its jobs are asked."""
    made = service()
    yield made
    made._preparing.shutdown()
