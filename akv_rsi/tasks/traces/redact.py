"""Keys and passwords never reach a report; with `--redact` no text of a transcript does."""

from __future__ import annotations

import re
import zlib

MASK = "[secret]"
_SECRETS = re.compile(
    r"""
    -----BEGIN[ A-Z]*PRIVATE\ KEY-----.*?(?:-----END[ A-Z]*PRIVATE\ KEY-----|\Z)
    | \b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}
    | \b(?:gh[pousr]|github_pat)_[A-Za-z0-9_]{20,}
    | \bglpat-[A-Za-z0-9_-]{16,}
    | \bxox[abeprs]-[A-Za-z0-9-]{10,}
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b
    | \bAIza[A-Za-z0-9_-]{30,}
    | \bhf_[A-Za-z0-9]{20,}
    | \beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?
    | (?<=://)[^/\s:@]+:[^/\s:@]+(?=@)
    """,
    re.VERBOSE | re.DOTALL,
)
_NAMED = re.compile(
    r"""((?:api|access|secret|private|auth|client)[-_ ]?(?:key|token|secret)|authorization|bearer
    |passw(?:or)?d|passphrase|secret|token|cookie)
    (\\?["']?\s*[:=]\s*(?:bearer|basic)?\s*\\?["']?|\s+(?:bearer|basic)\s+|\s+(?=\S{16}))
    ([^\s"'\\,;&]{6,})""",
    re.VERBOSE | re.IGNORECASE,
)


def mask(text: str) -> str:
    """``text`` without what looks like a key, a token or a password.

    >>> mask("curl -H 'Authorization: Bearer abcdef0123456789' x")
    "curl -H 'Authorization: Bearer [secret]' x"
    """
    return _NAMED.sub(rf"\1\2{MASK}", _SECRETS.sub(MASK, text))


def redact(text: str) -> str:
    """A name for ``text`` that tells equal texts and nothing else."""
    return f"#{zlib.crc32(text.encode('utf-8', 'replace')):08x}"
