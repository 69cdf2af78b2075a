"""Drop rules: what goes by itself before each call, as a function of the messages.

The ops of a call happen where the last answer ends, before the text that came since is computed.
There, everything a rule matches goes, except its ``keep_last`` latest matches, the attention sinks
and the turn that is current.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from akv_rsi.errors import ConfigError
from akv_rsi.policies.ranges import merge, subtract
from akv_rsi.server.prompt import Prompt
from akv_rsi.server.wire import DropRule
from akv_rsi.types import Range

THINKING = ("<think>", "</think>")


def rule_drops(rules: Sequence[DropRule], prompt: Prompt) -> Iterator[tuple[int, list[Range]]]:
    """Per boundary, what the rules drop there or have dropped before, in tokens."""
    matches = [(rule.keep_last, list(_matches(rule, prompt))) for rule in rules]
    for answer in prompt.answers if matches else ():
        start, boundary = prompt.rendered.span(answer)
        gone: list[Range] = []
        for keep, found in matches:
            past = [span for span in found if span[1] <= start]
            gone += past[: max(0, len(past) - keep)]
        if ranges := subtract(merge(gone), list(prompt.pinned)):
            yield boundary, ranges


def _matches(rule: DropRule, prompt: Prompt) -> Iterator[Range]:
    """What a rule is about, in order."""
    markers = (rule.start, rule.end)
    if rule.type != "text_drop" and markers != (None, None):
        raise ConfigError(f"a {rule.type} rule has no start and end: use text_drop")
    if rule.type == "message_drop":
        yield from (
            prompt.rendered.span(number)
            for number, message in enumerate(prompt.messages)
            if message.role == rule.role
        )
    elif rule.type == "thinking_drop":
        yield from _stretches(prompt, *THINKING, answers=True)
    elif rule.start is None or rule.end is None:
        raise ConfigError("a text_drop rule needs start and end, the texts around what is dropped")
    else:
        yield from _stretches(prompt, rule.start, rule.end, answers=False)


def _stretches(prompt: Prompt, start: str, end: str, answers: bool) -> Iterator[Range]:
    """The stretches of messages from ``start`` to ``end``, both included, in tokens."""
    pattern = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
    rendered = prompt.rendered
    for number in prompt.answers if answers else range(len(prompt.messages)):
        for found in pattern.finditer(rendered.written.message(number)):
            offset = rendered.written.starts[number]
            first = rendered.token_at(offset + found.start())
            last = rendered.token_at(offset + found.end())
            if first < last:
                yield first, last
