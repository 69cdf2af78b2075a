"""The OpenAPI schema is true: requests made from it, valid and not, get what it promises."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from serving import Served, service, serving

from akv_rsi.server.limits import ServerConfig, TenantLimits
from akv_rsi.server.tenants import Tenants

schemathesis = pytest.importorskip("schemathesis")
from schemathesis.specs.openapi.checks import positive_data_acceptance  # noqa: E402

# A request that fits the schema may still be refused: its ops may break the contract.
NOT_PROMISED = positive_data_acceptance
PATHS = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("GET", "/v1/sessions/{session}"),
    ("GET", "/health"),
]


@pytest.fixture(scope="module")
def short() -> Iterator[Served]:
    """A server whose answers are short, however many tokens are asked for."""
    limits = {"": TenantLimits(max_context=128)}
    with serving(service(ServerConfig(answer_tokens=4), Tenants(limits=limits))) as served:
        yield served


@pytest.mark.parametrize(("method", "path"), PATHS, ids=[path for _, path in PATHS])
def test_some_requests_get_what_the_schema_promises(short: Served, method: str, path: str) -> None:
    schema = schemathesis.openapi.from_url(f"{short.url}/openapi.json")

    @seed(1)
    @settings(
        max_examples=10,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=schema[path][method].as_strategy())
    def asks(case: schemathesis.Case) -> None:
        case.call_and_validate(excluded_checks=[NOT_PROMISED], timeout=120)

    asks()
    short.balanced()


@pytest.mark.slow
def test_the_schema_holds_and_nothing_breaks_the_server(short: Served, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            Path(sys.executable).with_name("schemathesis"),
            *("run", f"{short.url}/openapi.json", "--exclude-checks", NOT_PROMISED.__name__),
            *("--max-examples", "50", "--generation-deterministic", "--no-shrink"),
            *("--phases", "examples,coverage,fuzzing", "--continue-on-failure"),
            *("--request-timeout", "120"),
        ],
        capture_output=True,
        text=True,
        timeout=1500,
        cwd=tmp_path,
        check=False,
    )
    short.balanced()
    assert done.returncode == 0, done.stdout[-4000:]
