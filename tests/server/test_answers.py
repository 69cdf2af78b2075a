"""Sampled tokens of answers come back into the prompt, exactly when the text is the same."""

from __future__ import annotations

import merging
import pytest

from akv_rsi.server.answers import Answer, Answers
from akv_rsi.server.prompt import Prompt, Writer
from akv_rsi.server.wire import Message
from akv_rsi.tasks.template import ChatTemplate

ASKED = [{"role": "user", "content": "what is it"}]


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    return merging.template()


def prompt(template: ChatTemplate, *said: str) -> Prompt:
    messages = [*ASKED]
    for text in said:
        messages += [{"role": "assistant", "content": text}, {"role": "tool", "content": "and"}]
    return Writer(template, False).write([Message.model_validate(m) for m in messages], None, "")


def spelled(template: ChatTemplate, text: str) -> tuple[int, ...]:
    """The text letter by letter: other tokens than the tokenizer's own."""
    letters = [template.tokenizer(c, add_special_tokens=False)["input_ids"] for c in text]
    return tuple(token for ids in letters for token in ids)


def test_equal_text_goes_on_from_what_was_sampled(template: ChatTemplate) -> None:
    answers = Answers(10, merging.template().stops())
    text = "the answer of the day"
    sampled = spelled(template, text)
    answers.keep("t", prompt(template).rendered.tokens, Answer(text, sampled))
    before = prompt(template, text)
    after = answers.splice("t", before)
    at = len(prompt(template).rendered.tokens)
    assert after.rendered.tokens[at : at + len(sampled)] == sampled
    assert template.tokenizer.decode(after.rendered.tokens) == template.tokenizer.decode(
        before.rendered.tokens
    )
    assert (answers.spliced, answers.forked) == (1, 0)
    assert len(after.rendered.tokens) > len(before.rendered.tokens)
    tools = [p.rendered.tokens[slice(*p.rendered.span(2))] for p in (before, after)]
    assert tools[0] == tools[1]


def test_a_second_answer_is_found_behind_the_first(template: ChatTemplate) -> None:
    answers = Answers(10, merging.template().stops())
    first, second = "the answer", "an other answer"
    answers.keep("t", prompt(template).rendered.tokens, Answer(first, spelled(template, first)))
    asked = answers.splice("t", prompt(template, first))
    answers.keep("t", asked.rendered.tokens, Answer(second, spelled(template, second)))
    both = answers.splice("t", prompt(template, first, second))
    assert both.rendered.tokens[: len(asked.rendered.tokens)] == asked.rendered.tokens
    at = len(asked.rendered.tokens)
    assert both.rendered.tokens[at : at + len(second)] == spelled(template, second)


def test_another_text_forks_and_is_counted(template: ChatTemplate) -> None:
    answers = Answers(10, merging.template().stops())
    asked = prompt(template).rendered.tokens
    answers.keep("t", asked, Answer("the answer", spelled(template, "the answer")))
    changed = prompt(template, "the answer, edited")
    assert answers.splice("t", changed) is changed
    assert (answers.spliced, answers.forked) == (0, 1)


def test_answers_stay_within_their_tenant_and_conversation(template: ChatTemplate) -> None:
    answers = Answers(10, merging.template().stops())
    text = "the answer"
    asked = prompt(template).rendered.tokens
    answers.keep("t", asked, Answer(text, spelled(template, text)))
    whole = prompt(template, text)
    assert answers.splice("u", whole) is whole
    moved = Writer(template, False).write(
        [Message(role="user", content="else"), *whole.messages[1:]], None, ""
    )
    assert answers.splice("t", moved) is moved
    assert answers.splice("t", whole) is not whole
    assert answers.forked == 0


def test_the_oldest_answer_is_forgotten(template: ChatTemplate) -> None:
    answers = Answers(1, merging.template().stops())
    asked = prompt(template).rendered.tokens
    answers.keep("t", asked, Answer("the answer", spelled(template, "the answer")))
    answers.keep("t", (*asked, 1), Answer("x", (1,)))
    whole = prompt(template, "the answer")
    assert answers.splice("t", whole) is whole
