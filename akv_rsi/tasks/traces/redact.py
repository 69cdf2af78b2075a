r"""Keys and passwords never reach a report; with `--redact` no text of a transcript does.

Secrets are told by their shape (the prefixes that issuers give them, private key blocks, tokens in
three parts), by their place (a URL's user part, a header, a flag) or by the name in front of them.
Text may be JSON inside of JSON: escapes of plain characters are undone first, quotes may be escaped
several times, and a key may follow the letter of a ``\n``. What is cut is masked before, or whole.
"""

from __future__ import annotations

import re
import zlib

MASK = "[secret]"
_SECRETS = re.compile(
    r"""
    -----BEGIN[ A-Z]*PRIVATE\ KEY(?:\ BLOCK)?-----
        .*?(?:-----END[ A-Z]*PRIVATE\ KEY(?:\ BLOCK)?-----|\Z)
    | \A[^-]*-----END[ A-Z]*PRIVATE\ KEY(?:\ BLOCK)?-----
    | (?:(?<![A-Za-z0-9])|(?<=\\[bfnrt]))(?:
        (?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}
        | (?:gh[pousr]|github_pat)_[A-Za-z0-9_]{20,}
        | gl(?:pat|ptt|dt|rt|cbt)-[A-Za-z0-9_-]{16,}
        | xox[abeprs]-[A-Za-z0-9-]{10,}
        | xapp-[A-Za-z0-9-]{10,}
        | (?:AKIA|ASIA)[A-Z0-9]{16}
        | AIza[A-Za-z0-9_-]{30,}
        | ya29\.[A-Za-z0-9_-]{16,}
        | GOCSPX-[A-Za-z0-9_-]{16,}
        | (?:hf|npm|gsk|r8|dop_v1|shp(?:at|ss|ca|pa)|whsec|lin_api)_[A-Za-z0-9]{16,}
        | (?:pypi|xai|dckr_pat|pplx)-[A-Za-z0-9_-]{16,}
        | SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}
        | AGE-SECRET-KEY-1[A-Z0-9]{20,}
        | eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)+
        | [0-9]{8,10}:AA[A-Za-z0-9_-]{30,}
    )
    | (?<=hooks\.slack\.com/services/)[A-Za-z0-9/]+
    | (?:(?<=://)|(?<=:\\/\\/))
        (?:[^\s/:@"'\\]*:[^\s/"']+|[^\s/:@"'\\]{16,})(?=@)
    """,
    re.VERBOSE | re.DOTALL,
)
_QUOTE = r"""\\*["']"""
_VALUE = rf"""(?:(?P<quote>{_QUOTE})(?:(?!(?P=quote)).)+|[^\s"'\\]{{4,}})"""
_KEYS = "api|access|account|auth|client|deploy|encryption|master|private|secret|session|shared"
_NAME = rf"""(?:(?:{_KEYS}|signing|ssh|storage|webhook)[-_ ]?(?:key|token|secret)(?:[-_ ]?id)?
    |passw(?:or)?d|passphrase|passcode|(?<=[-_])(?:pass|pwd)|secrets?|token|credentials?|signature)"""
_NAMED = re.compile(
    rf"""(?P<name>
        (?:authorization|cookie){_QUOTE}?\s*[:=]\s*{_QUOTE}?(?:(?:bearer|basic|token|digest)\s+)?
        | \b(?:bearer|basic)\s+(?=[^\s"'\\]{{16}})
    )(?P<line>[^\r\n"'\\]{{4,}})
    | (?P<flag>--?{_NAME}\s+|(?<=\s)(?:-u|--user)\s+[^\s:]+:|\bsshpass\s+-p\s*){_VALUE}
    | (?P<key>{_NAME}(?:{_QUOTE})?(?:\s*[:=]>?\s*|\s+(?=[^\s]{{16}})))"""
    + _VALUE.replace("quote", "mark"),
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_ESCAPED = re.compile(r"\\+u00([2-7][0-9a-fA-F])")
# What a secret may be made of: a cut must not leave the beginning of one.
_WORD = re.compile(r"[^\s\"'=:,;(){}<>]*\Z")


def mask(text: str) -> str:
    """``text`` without what looks like a key, a token or a password.

    >>> mask("curl -H 'Authorization: Bearer abcdef0123456789' x")
    "curl -H 'Authorization: Bearer [secret]' x"
    """
    if len(text) < 8:
        return text
    plain = _ESCAPED.sub(_unescaped, text) if "u00" in text else text
    return _NAMED.sub(_masked, _SECRETS.sub(MASK, plain))


def _unescaped(match: re.Match[str]) -> str:
    """A plain character; quotes and backslashes stay escaped, for they mean something in JSON."""
    found = chr(int(match.group(1), 16))
    return match.group() if found in "\"'\\" else found


def _masked(match: re.Match[str]) -> str:
    groups = match.groupdict()
    before = groups["name"] or groups["flag"] or groups["key"]
    return f"{before}{groups['quote'] or groups['mark'] or ''}{MASK}"


def cut(text: str, size: int) -> str:
    """At most ``size`` characters of ``text``, without the word that the cut would split.

    >>> cut("token sk-abcdef", 12)
    'token '
    """
    return text if len(text) <= size else _WORD.sub("", text[:size])


def redact(text: str) -> str:
    """A name for ``text`` that tells equal texts and nothing else."""
    return f"#{zlib.crc32(text.encode('utf-8', 'replace')):08x}"
