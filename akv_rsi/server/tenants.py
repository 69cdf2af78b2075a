"""API keys, the tenants they belong to, and how much of the server each may use at once.

The key file holds SHA-256 digests, never keys. Keys must be random (``python -c "import secrets;
print(secrets.token_urlsafe(32))"``): a digest of those needs no salt.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from akv_rsi.config import from_mapping
from akv_rsi.errors import ConfigError
from akv_rsi.server.limits import TenantLimits
from akv_rsi.server.refusal import Refusal


class Tenants:
    """Who may ask. Without a key file everyone may, as tenant ``""``, which has all places."""

    def __init__(
        self,
        keys: Mapping[str, str] | None = None,
        limits: Mapping[str, TenantLimits] | None = None,
    ) -> None:
        """``keys`` maps the SHA-256 of a key, in hex, to its tenant; None asks for no key."""
        self._keys = keys
        self._limits = limits or {}

    @classmethod
    def load(cls, file: Path) -> Tenants:
        """From JSON: per tenant ``{"keys": [SHA-256 digests], "max_in_work": 8, ...}``."""
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            entries = {name: dict(entry) for name, entry in content.items()}
            digests = {name: list(entry.pop("keys")) for name, entry in entries.items()}
        except OSError as error:
            raise ConfigError(f"the key file {file} cannot be read: {error.strerror}") from error
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise ConfigError(
                f'the key file {file} must hold {{"tenant": {{"keys": ["sha256 in hex"]}}}}'
            ) from error
        keys: dict[str, str] = {}
        for name, values in digests.items():
            for value in values:
                if not _is_digest(value):
                    raise ConfigError(
                        f"a key of tenant {name} is no SHA-256 digest: write "
                        "`printf %s KEY | sha256sum`, never the key itself"
                    )
                if keys.setdefault(value, name) != name:
                    raise ConfigError(f"tenants {keys[value]} and {name} have a key in common")
        return cls(keys, {name: from_mapping(TenantLimits, e) for name, e in entries.items()})

    def of(self, authorization: str | None) -> str:
        """The tenant of an ``Authorization`` header; `Refusal` (401) when it is nobody's."""
        if self._keys is None:
            return ""
        scheme, _, key = (authorization or "").partition(" ")
        # A digest is looked up, so that the time it takes says nothing about the keys.
        tenant = self._keys.get(hashlib.sha256(key.strip().encode()).hexdigest())
        if scheme.lower() != "bearer" or tenant is None:
            raise Refusal(401, "no such API key: send Authorization: Bearer KEY", "invalid_api_key")
        return tenant

    def limits(self, tenant: str) -> TenantLimits:
        """What a tenant may do."""
        everyone = TenantLimits(max_in_work=sys.maxsize) if self._keys is None else TenantLimits()
        return self._limits.get(tenant, everyone)


class Gate:
    """Counts the requests in work, and turns away those that are too many."""

    def __init__(self, tenants: Tenants, most: int) -> None:
        self._tenants = tenants
        self._most = most
        self._inside: Counter[str] = Counter()

    @property
    def inside(self) -> int:
        """Requests in work."""
        return self._inside.total()

    @contextmanager
    def entered(self, tenant: str) -> Iterator[None]:
        """Holds a place; `Refusal` (429) when there is none."""
        limit = self._tenants.limits(tenant).max_in_work
        if self.inside >= self._most:
            raise Refusal(429, "the server is full: try again later", "server_full")
        if self._inside[tenant] >= limit:
            raise Refusal(429, f"{limit} requests are in work already", "tenant_limit")
        self._inside[tenant] += 1
        try:
            yield
        finally:
            self._inside[tenant] -= 1


def _is_digest(value: object) -> bool:
    return (
        isinstance(value, str)
        and len(value) == 64
        and all(digit in "0123456789abcdef" for digit in value)
    )
