"""Where messages lie: found with few renderings, and where rendering every prefix finds them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from chats import CHATML, FOLDED, HEADERS, MOVED_TOOLS, RESULTS, THINKING, tokenizer

from akv_rsi.tasks import locate
from akv_rsi.tasks.locate import Locator, TemplateRefused
from akv_rsi.tasks.template import ChatTemplate

OPENING = [
    {"role": "system", "content": "Be the agent."},
    {"role": "user", "content": "open the file"},
]


def agent(count: int, results: int = 1) -> list[dict[str, Any]]:
    """An agent with one task and ``results`` answers to each of its calls."""
    messages = [*OPENING]
    for number in range(count):
        messages.append({"role": "assistant", "content": f"the answer {number}"})
        messages += [{"role": "tool", "content": f"file {i} of {number}"} for i in range(results)]
    return messages


def talk(count: int) -> list[dict[str, Any]]:
    messages = [*OPENING]
    for number in range(count):
        messages.append({"role": "assistant", "content": f"the answer {number}"})
        messages.append({"role": "user", "content": f"and {number}"})
    return messages


def mixed(count: int) -> list[dict[str, Any]]:
    """Calls, some with two results, and now and then the user again."""
    draw, messages = random.Random(count), [*OPENING]
    for number in range(count):
        messages.append({"role": "assistant", "content": f"the answer {number}"})
        role = draw.choice(["tool", "tool", "tool", "user"])
        parts = range(draw.choice([1, 1, 2]) if role == "tool" else 1)
        messages += [{"role": role, "content": f"{role} {part} of {number}"} for part in parts]
    return messages


class Counted:
    """A template in Python that counts the messages it writes."""

    def __init__(self, numbered: bool = False) -> None:
        self.numbered = numbered
        self.written = 0

    def __call__(self, messages: Sequence[Any], tools: object, answer: bool) -> str:
        self.written += len(messages)
        numbers = range(len(messages)) if self.numbered else [0] * len(messages)
        return "".join(
            f"<{n} {m['role']}>{m['content']}</>" for n, m in zip(numbers, messages, strict=True)
        )

    def starts(self, messages: Sequence[Any], known: Sequence[int] = (0,)) -> Sequence[int]:
        whole = self(messages, None, False)
        self.written = 0
        return Locator(self, messages, None, whole).starts(known).starts


@pytest.mark.parametrize("text", [CHATML, HEADERS, FOLDED, THINKING, MOVED_TOOLS, RESULTS])
@pytest.mark.parametrize("said", [agent(14), agent(9, 2), talk(12), mixed(12)], ids="atcm")
def test_a_stretch_at_a_time_finds_what_every_prefix_finds(
    monkeypatch: pytest.MonkeyPatch, text: str, said: list
) -> None:
    def found() -> object:
        try:
            return ChatTemplate(tokenizer(text)).write(said)
        except TemplateRefused as error:
            return str(error)

    by_prefix = found()  # these conversations are shorter than a stretch
    monkeypatch.setattr(locate, "STRETCH", 4)
    assert found() == by_prefix


@pytest.mark.parametrize("text", [CHATML, RESULTS])
def test_results_in_one_turn_are_told_apart(text: str) -> None:
    said = agent(3, 3)
    written = ChatTemplate(tokenizer(text)).write(said)
    for number in range(len(said)):
        inside = [i for i, m in enumerate(said) if m["content"] in written.message(number)]
        assert inside == [number]


def test_results_that_a_template_rewords_are_left_alone() -> None:
    """They are found by their prefixes; only what is cut out of a shared turn must be verbatim."""
    reworded = CHATML.replace("{{ m.content }}", "{{ m.content | tojson }}", 1)
    said = [*OPENING, {"role": "assistant", "content": "the answer"}]
    said += [{"role": "tool", "content": "file\t" * count} for count in (1, 2)]
    written = ChatTemplate(tokenizer(reworded)).write(said)
    assert written.message(4).count("file") == 2
    assert "\t" not in written.text


@pytest.mark.parametrize("text", [CHATML, RESULTS])
def test_a_grown_conversation_is_located_from_where_it_was(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    said = agent(20)
    template = ChatTemplate(tokenizer(text))
    template.write(said[:-2])
    rendered: list[int] = []
    real = ChatTemplate._text
    monkeypatch.setattr(
        ChatTemplate,
        "_text",
        lambda self, m, *more: rendered.append(len(m)) or real(self, m, *more),
    )
    grown = template.write(said)
    assert len(rendered) == 4  # the whole twice, what was known, and one message more
    other = [*said[:5], {"role": "user", "content": "else"}, *said[5:]]
    forked = template.write(other)
    monkeypatch.undo()
    assert grown == ChatTemplate(tokenizer(text)).write(said)
    assert forked == ChatTemplate(tokenizer(text)).write(other)


def test_ten_thousand_messages_take_about_a_hundred_writings_each() -> None:
    template, said = Counted(), agent(5000)
    starts = template.starts(said)
    assert template.written < 120 * len(said)  # 5,000 times each, prefix by prefix
    ends = [len(f"<0 {m['role']}>{m['content']}</>") for m in said]
    assert [b - a for a, b in pairwise(starts)] == ends
    longer = [*said, {"role": "user", "content": "next"}]
    assert template.starts(longer, starts)[:-1] == starts
    assert template.written < 2 * len(longer)


def test_what_would_take_forever_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    template, said = Counted(numbered=True), agent(200)
    assert len(template.starts(said)) == len(said) + 1  # one by one: the numbers say where
    monkeypatch.setattr(locate, "_MOST", 10_000)
    with pytest.raises(TemplateRefused, match="402 messages are too many"):
        template.starts(said)
    assert template.written < 20_000
