"""Our frozen dataclasses as JSON and back: what the store keeps."""

from __future__ import annotations

import json
import zlib
from dataclasses import fields, is_dataclass
from typing import Any

from akv_rsi.errors import RunCorrupt
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.search.candidate import Candidate
from akv_rsi.search.findings import Critique, Effort, Finding, Span, Waste
from akv_rsi.search.traits import Sample, Traits
from akv_rsi.tasks.episode import Episode, Measured, TaskRef
from akv_rsi.types import Call, Drop, Refresh, Repos, Restore, Segment, Trajectory, Usage

_CLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        *(Call, Candidate, Critique, Drop, Effort, Episode, Finding, Measured, PolicySpec, Refresh),
        *(Repos, Restore, Sample, Segment, Span, TaskRef, Traits, Trajectory, Usage, Waste),
    )
}


def encode(value: object) -> Any:
    """``value`` as plain JSON; a dataclass becomes ``{"is": its name, field: ...}``.

    >>> encode(Drop(8, ((2, 4),)))
    {'is': 'Drop', 'boundary': 8, 'ranges': [[2, 4]]}
    """
    if is_dataclass(value) and not isinstance(value, type):
        content = {f.name: encode(getattr(value, f.name)) for f in fields(value)}
        return {"is": type(value).__name__, **content}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    return value


def decode(data: Any) -> Any:
    """The inverse of `encode`; lists come back as tuples. `RunCorrupt` for an unknown class."""
    if isinstance(data, list):
        return tuple(decode(item) for item in data)
    if not isinstance(data, dict):
        return data
    content = {key: decode(item) for key, item in data.items()}
    if "is" not in content:
        return content
    name = content.pop("is")
    try:
        return _CLASSES[name](**content)
    except (KeyError, TypeError) as error:
        raise RunCorrupt(f"the run holds a {name} this version cannot read: {error}") from error


def dumps(value: object) -> str:
    """`encode` as canonical text: the same value gives the same bytes."""
    return json.dumps(encode(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def loads(text: str) -> Any:
    """The inverse of `dumps`."""
    return decode(json.loads(text))


def pack(value: object) -> bytes:
    """`dumps`, compressed: for trajectories, which are long and rarely read."""
    return zlib.compress(dumps(value).encode(), level=1)


def unpack(data: bytes) -> Any:
    """The inverse of `pack`."""
    return loads(zlib.decompress(data).decode())
