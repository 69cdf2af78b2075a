"""A prompt as policies see it: messages as segments, ephemeral stretches as their own ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from akv_rsi.policies.wire import segments_of
from akv_rsi.server.prompt import Mark, Prompt, untagged
from akv_rsi.types import Segment


def segments(prompt: Prompt) -> list[Segment]:
    """The segments of a prompt's messages, numbered from 0."""
    whole = segments_of(
        [m.model_dump(exclude_none=True) | {"content": m.text} for m in prompt.messages],
        prompt.ends(),
    )
    marks = {n: list(found) for n, found in groupby(prompt.marks, key=lambda mark: mark.message)}
    parts = [part for segment in whole for part in _parts(segment, prompt, marks)]
    return [replace(part, id=number) for number, part in enumerate(parts)]


def _parts(segment: Segment, prompt: Prompt, marks: dict[int, list[Mark]]) -> Iterator[Segment]:
    """A message cut at its ephemeral stretches; parts without tokens are left out."""
    if segment.id not in marks:
        yield replace(segment, ephemeral=False)
        return
    texts = untagged(prompt.messages[segment.id].text)
    start = segment.start
    for mark in marks[segment.id]:
        yield from _part(segment, start, mark.start, next(texts), False)
        yield from _part(segment, mark.start, mark.end, mark.text, True)
        start = mark.end
    yield from _part(segment, start, segment.end, " ".join(texts), False)


def _part(segment: Segment, start: int, end: int, text: str, ephemeral: bool) -> Iterator[Segment]:
    if start < end:
        yield replace(segment, start=start, end=end, text=text, ephemeral=ephemeral)
