"""The shapes that formats share: content blocks, arguments, usage records, times."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from akv_rsi.tasks.traces.events import Recorded, Skipped
from akv_rsi.types import Usage

Json = Any
_TEXT = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text"})
_IMAGE = frozenset({"image", "image_url", "input_image", "image_file"})


@dataclass(slots=True)
class Content:
    """The text of some content, how many images it holds, and what was left out of it."""

    text: str = ""
    images: int = 0
    skipped: list[Skipped] = field(default_factory=list)


def content_of(value: Json) -> Content:
    """The content of a message or a tool result: a string, a block, or a list of them.

    Blocks of an unknown type are left out, and counted.

    >>> content_of([{"type": "text", "text": "a"}, {"type": "image", "data": "..."}]).images
    1
    """
    if isinstance(value, str):
        return Content(value)
    content, texts = Content(), list[str]()
    for block in value if isinstance(value, list) else [value]:
        _add(block, content, texts)
    content.text = "\n".join(texts)
    return content


def _add(block: Json, content: Content, texts: list[str]) -> None:
    if block is None:
        return
    if isinstance(block, str):
        texts.append(block)
        return
    kind = type(block).__name__
    if isinstance(block, dict):
        kind = text_of(block.get("type")) or ("text" if "text" in block else "object")
    if kind in _TEXT:
        texts.append(written(block.get("text") or ""))
    elif kind in _IMAGE:
        content.images += 1
    elif kind == "refusal":
        texts.append(written(block.get("refusal") or ""))
    else:
        content.skipped.append(Skipped(f"content of type {kind!r}", size_of(block)))


def written(value: Json) -> str:
    """``value`` as the text a model would write or read: itself, or its JSON.

    >>> written({"path": "a.py"})
    '{"path": "a.py"}'
    """
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def size_of(value: Json) -> int:
    """How many characters of text there are in ``value``, keys and punctuation aside.

    >>> size_of({"path": "a.py", "lines": [1, "xy"]})
    6
    """
    if isinstance(value, str):
        return len(value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(map(size_of, inner))


def text_of(value: Json) -> str:
    """``value`` if it is a string, else nothing."""
    return value if isinstance(value, str) else ""


def mapping(value: Json) -> Mapping[str, Json]:
    """``value`` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: Json) -> Iterator[Mapping[str, Json]]:
    """The objects in a list; nothing if it is none."""
    return (v for v in value if isinstance(v, dict)) if isinstance(value, list) else iter(())


def count(value: Json) -> int:
    """A count of tokens; 0 for what is none.

    >>> count(12), count(None), count(-1), count("7")
    (12, 0, 0, 7)
    """
    if isinstance(value, str) and value.isdigit():
        return int(value)
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e12
    return int(value) if good else 0


def openai_usage(value: Json) -> Recorded | None:
    """The usage of OpenAI's APIs, chat or responses, and of what speaks like them."""
    usage = mapping(value)
    prompt = count(usage.get("prompt_tokens", usage.get("input_tokens")))
    output = count(usage.get("completion_tokens", usage.get("output_tokens")))
    if not prompt and not output:
        return None
    details = mapping(usage.get("prompt_tokens_details", usage.get("input_tokens_details")))
    cached = details.get("cached_tokens", usage.get("cached_input_tokens"))
    produced = mapping(usage.get("completion_tokens_details", usage.get("output_tokens_details")))
    reasoning = count(produced.get("reasoning_tokens", usage.get("reasoning_output_tokens")))
    return recorded(prompt, output, cached, reasoning)


def recorded(prompt: int, output: int, cached: Json = None, reasoning: int = 0) -> Recorded:
    """A record of a whole prompt's tokens, of which ``cached`` were read; None if nobody says."""
    read = min(count(cached), prompt)
    fresh = prompt - read
    caching = cached is not None
    return Recorded(Usage(1, fresh, read, fresh if caching else 0, output), caching, reasoning)


def anthropic_usage(value: Json) -> Recorded | None:
    """The usage of Anthropic's API, which counts cached input apart."""
    usage = mapping(value)
    fresh, output = count(usage.get("input_tokens")), count(usage.get("output_tokens"))
    read = count(usage.get("cache_read_input_tokens"))
    write = count(usage.get("cache_creation_input_tokens"))
    if not fresh + read + write:
        return None
    return Recorded(Usage(1, fresh + write, read, write, output))


def latest(old: Recorded | None, new: Recorded | None) -> Recorded | None:
    """The later record, with the larger output: streamed records begin with a stub."""
    if old is None or new is None:
        return new or old
    if old.usage.output <= new.usage.output:
        return new
    return replace(new, usage=replace(new.usage, output=old.usage.output))


def seconds(value: Json) -> float | None:
    """A time as seconds since 1970, from ISO 8601 or from seconds, milli- or nanoseconds.

    >>> seconds("1970-01-01T00:01:00Z"), seconds(1_700_000_000_000), seconds("never")
    (60.0, 1700000000.0, None)
    """
    if isinstance(value, str):
        if value.isdigit():
            return seconds(int(value))
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            return None
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return None
    # Each limit is the year 5138 in its unit.
    for limit, unit in ((1e11, 1.0), (1e14, 1e3), (1e17, 1e6)):
        if value < limit:
            return value / unit
    return value / 1e9
