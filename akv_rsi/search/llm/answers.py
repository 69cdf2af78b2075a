"""What models are asked for, as pydantic models, and how it is read out of what they say."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from akv_rsi.policies.lint import LONGEST_SOURCE
from akv_rsi.search.llm.endpoint import Endpoint, Mode, Reply
from akv_rsi.search.llm.prompts import prompt, text_of

PROBE_TOKENS = 64
MODES: tuple[Mode, ...] = ("json_schema", "json_object", "fenced")
Line = Annotated[str, StringConstraints(max_length=600, strip_whitespace=True)]


class Proposal(BaseModel):
    """A policy and the idea behind it."""

    model_config = ConfigDict(extra="forbid")
    idea: Line
    source: Annotated[str, StringConstraints(max_length=LONGEST_SOURCE, min_length=1)]


class Diagnosis(BaseModel):
    """What failures have in common, and what to do about it."""

    model_config = ConfigDict(extra="forbid")
    diagnosis: Line
    lesson: Line


class Strategy(BaseModel):
    """Advice to authors of policies."""

    model_config = ConfigDict(extra="forbid")
    strategy: Annotated[str, StringConstraints(max_length=900, min_length=20)]


class Probe(BaseModel):
    """Whether a form of answers works."""

    model_config = ConfigDict(extra="forbid")
    ok: bool


Form = TypeVar("Form", bound=BaseModel)
_FENCE = re.compile(r"```(\w*)[ \t]*\n(.*?)(?:```|\Z)", re.S)
_FENCED = ("json", "python", "py", "")


def schema(form: type[BaseModel], mode: Mode = "json_schema") -> dict[str, Any]:
    """The JSON schema of a form; in mode ``grammar`` that of policies."""
    return {"grammar": text_of("dsl.ebnf")} if mode == "grammar" else form.model_json_schema()


def instruction(form: type[BaseModel], mode: Mode) -> str:
    """How to answer, for the end of the system prompt."""
    if mode == "grammar":
        return prompt("form_program")
    keys = ", ".join(f'"{name}"' for name in form.model_fields)
    return prompt("form_fenced" if mode == "fenced" else "form_json", keys=keys)


def read(text: str, form: type[Form]) -> Form | None:
    """The form in ``text``: as JSON, or in a fenced block; None when there is none.

    A proposal may also be just a Python program, fenced or alone. Blocks of other languages, such
    as diffs, are passed over.
    """
    blocks = [block for language, block in _FENCE.findall(text) if language in _FENCED]
    for candidate in (text, *blocks):
        try:
            return form.model_validate_json(candidate.strip())
        except ValidationError:
            continue
    if form is Proposal:
        programs = [block for block in (blocks or [text]) if "def policy" in block]
        if programs and len(programs[-1]) <= LONGEST_SOURCE:
            return form.model_validate({"idea": "", "source": programs[-1]})
    return None


def probe(endpoint: Endpoint) -> tuple[Mode | None, Reply]:
    """The first form of answers that the server and its model manage, and what asking took.

    None when no answer of any form came: the reply then says why.
    """
    tokens_in = tokens_out = tries = 0
    reply = Reply()
    for mode in MODES:
        system = instruction(Probe, mode)
        reply = endpoint.ask(system, prompt("probe"), mode, schema(Probe), PROBE_TOKENS)
        tokens_in, tokens_out = tokens_in + reply.tokens_in, tokens_out + reply.tokens_out
        tries += reply.tries
        told = Reply(reply.text, reply.failure, reply.detail, tokens_in, tokens_out, tries)
        if reply.failure in ("unreachable", "busy", "timeout"):
            return None, told
        if not reply.failure and read(reply.text, Probe) is not None:
            return mode, told
    return (None if reply.failure == "refused" else "fenced"), told


def as_text(form: BaseModel) -> str:
    """A form as the JSON that a model would answer."""
    return json.dumps(form.model_dump())
