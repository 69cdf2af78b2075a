"""Short ways to write transcripts and to read them back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from akv_rsi.tasks.traces.draft import Options
from akv_rsi.tasks.traces.read import Reading
from akv_rsi.tasks.traces.trace import Piece, Trace

Message = dict[str, Any]


def jsonl(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def document(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def traces(*paths: Path, **options: Any) -> list[Trace]:
    return [*Reading(list(paths), Options(**options))]


def only(path: Path) -> Trace:
    (trace,) = traces(path)
    return trace


def texts(trace: Trace) -> list[str]:
    return [piece.text for piece in pieces(trace)]


def pieces(trace: Trace) -> list[Piece]:
    return [piece for context in trace.contexts for piece in context.pieces]


def usage(prompt: int, cached: int | None, output: int = 30) -> Message:
    details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    return {"prompt_tokens": prompt, "completion_tokens": output, **details}


def turn(
    number: int, result: str, tool: str = "look", args: Any = None, **more: Any
) -> Iterable[Message]:
    """An answer that calls one tool, and its result, in OpenAI's chat format."""
    given = json.dumps({"n": number} if args is None else args)
    call = {"id": f"c{number}", "type": "function", "function": {"name": tool, "arguments": given}}
    yield {"role": "assistant", "content": "I look.", "tool_calls": [call], **more}
    yield {"role": "tool", "tool_call_id": f"c{number}", "name": tool, "content": result}


def conversation(results: Iterable[str], **more: Any) -> list[Message]:
    messages: list[Message] = [
        {"role": "system", "content": "You are an agent. " * 40},
        {"role": "user", "content": "Find the fault. " * 10},
    ]
    for number, result in enumerate(results):
        messages.extend(turn(number, result, **more))
    return [*messages, {"role": "assistant", "content": "Done."}]
