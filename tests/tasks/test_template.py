"""Chat templates of several families: which tokens belong to which message."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from chats import CHATML, COUNTED, FOLDED, HEADERS, LINES, MOVED_TOOLS, PICKY, THINKING, tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from akv_rsi.errors import ModelLoadError
from akv_rsi.tasks.environment import Message
from akv_rsi.tasks.load import find_model
from akv_rsi.tasks.locate import TemplateRefused
from akv_rsi.tasks.pretrained import ROLES, TemplateFormat
from akv_rsi.tasks.template import ChatTemplate, Rendered

TALK = [
    {"role": "system", "content": "Be the agent."},
    {"role": "user", "content": "open the file é😀"},
    {"role": "assistant", "content": "<think>which one?</think>the answer"},
    {"role": "user", "content": "and again"},
    {"role": "assistant", "content": "<think>hm</think>done"},
]
TOOLS = [{"type": "function", "function": {"name": "open", "parameters": {}}}]
ALL = (CHATML, HEADERS, FOLDED, THINKING, MOVED_TOOLS)


def template(text: str) -> ChatTemplate:
    return ChatTemplate(tokenizer(text))


def parts(text: str, messages: Any = TALK, **more: Any) -> list[str]:
    written = template(text).write(messages, **more)
    return [written.message(i) for i in range(len(messages))]


def check(rendered: Rendered) -> None:
    """Tokens tile the text, and each belongs to the message with its first character."""
    written = rendered.written
    assert len(rendered.starts) == len(written.starts)
    assert rendered.starts[0] == 0
    assert rendered.starts[-1] <= len(rendered.tokens)
    for low, high in pairwise(range(len(written.starts))):
        start, end = rendered.starts[low], rendered.starts[high]
        assert all(
            written.starts[low] <= rendered.offsets[t] < written.starts[high]
            for t in range(start, end)
        )


@pytest.mark.parametrize("text", ALL)
def test_every_token_has_one_message(text: str) -> None:
    rendered = template(text).render(TALK)
    check(rendered)
    assert tokenizer(text).decode(rendered.tokens) == rendered.written.text


def test_a_default_system_prompt_belongs_to_the_first_message() -> None:
    first, second = parts(CHATML, TALK[1:3])
    assert first.startswith("<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\n")
    assert second == f"<|im_start|>assistant\n{TALK[2]['content']}<|im_end|>\n"


def test_the_header_of_the_next_answer_belongs_to_nobody() -> None:
    one = template(CHATML)
    asked, told = one.render(TALK[:4]), one.render(TALK[:4], answer=False)
    assert asked.starts == told.starts
    assert asked.tokens[: len(told.tokens)] == told.tokens
    tail = asked.tokens[asked.starts[-1] :]
    assert one.tokenizer.decode(tail) == "<|im_start|>assistant\n"


def test_a_folded_system_prompt_is_part_of_the_user_message() -> None:
    system, user, *_ = parts(FOLDED)
    assert system == "<s>"
    assert user == "<turn>user\nBe the agent.\n\nopen the file é😀<end>\n"


def test_reasoning_that_is_taken_out_is_detected_and_the_messages_are_found() -> None:
    written = template(THINKING).write(TALK)
    assert written.rewritten == 2
    assert written.message(2) == "<|im_start|>assistant\nthe answer<|im_end|>\n"
    assert written.message(3) == "<|im_start|>user\nand again<|im_end|>\n"
    assert written.message(4) == f"<|im_start|>assistant\n{TALK[4]['content']}<|im_end|>\n"
    assert template(THINKING).write(TALK[:3]).rewritten is None
    assert template(CHATML).write(TALK).rewritten is None


def test_tools_that_move_are_part_of_the_message_they_stand_before() -> None:
    written = template(MOVED_TOOLS).write(TALK[1:], tools=TOOLS)
    assert written.rewritten == 0
    assert written.message(0) == "<s>[INST] open the file é😀 [/INST]"
    assert written.message(2).startswith("[TOOLS]")
    assert written.message(2).endswith("[INST] and again [/INST]")
    assert template(MOVED_TOOLS).write(TALK[1:2], tools=TOOLS).rewritten is None


def test_a_message_refused_alone_is_part_of_the_next_one() -> None:
    system, user, *_ = parts(PICKY)
    assert system == ""
    assert "Be the agent." in user
    assert "open the file" in user


def test_a_token_across_a_border_belongs_to_the_message_of_its_first_character() -> None:
    rendered = template(LINES).render(TALK[1:3])
    check(rendered)
    before, behind = rendered.offsets[rendered.starts[1] - 1 : rendered.starts[1] + 1]
    assert before < rendered.written.starts[1] < behind


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from([CHATML, HEADERS, THINKING]),
    st.lists(st.text(max_size=12), min_size=2, max_size=6),
)
def test_a_longer_conversation_begins_with_the_same_tokens(text: str, said: list[str]) -> None:
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": words} for i, words in enumerate(said)]
    try:
        long = template(text).render(messages, answer=False)
    except TemplateRefused:  # what was said looks like the template's own reasoning marks
        assert text == THINKING or any(words != words.strip() for words in said)
        return
    check(long)
    if long.written.rewritten is None:
        short = template(text).render(messages[:-1], answer=False)
        assert long.tokens[: long.starts[-2]] == short.tokens
        assert long.starts[:-1] == short.starts


@pytest.mark.parametrize(
    ("text", "messages", "words"),
    [
        (COUNTED, TALK, "cannot be told apart"),
        (FOLDED, [*TALK[:2], TALK[3]], "roles must take turns"),
        (CHATML, [], "at least one message"),
        ("{{ nothing.at.all }}", TALK, "refuses this conversation"),
        ("fixed text", TALK, "cannot be told apart"),
    ],
)
def test_what_cannot_be_told_apart_is_refused(text: str, messages: Any, words: str) -> None:
    with pytest.raises(TemplateRefused, match=words):
        template(text).render(messages)


def test_a_tokenizer_without_a_template_is_refused(tmp_path: Any) -> None:
    with pytest.raises(TemplateRefused, match="no chat template"):
        ChatTemplate(tokenizer(""))
    with pytest.raises(ModelLoadError, match="no usable tokenizer"):
        ChatTemplate.load(tmp_path)


def test_a_folder_is_loaded(tmp_path: Any) -> None:
    tokenizer(CHATML).save_pretrained(tmp_path)
    assert ChatTemplate.load(tmp_path).render(TALK) == template(CHATML).render(TALK)


# --- messages one by one


def format_of(text: str) -> TemplateFormat:
    return TemplateFormat(template(text), 1000)


@pytest.mark.parametrize("text", [CHATML, HEADERS, THINKING])
def test_messages_apart_are_the_tokens_of_the_whole(text: str) -> None:
    chat = format_of(text)
    said = [Message("system", "s"), Message("user", "open"), Message("tool_call", "the file")]
    said += [Message("tool_result", "the answer"), Message("user", "again")]
    whole = template(text).render([{"role": ROLES[m.kind], "content": m.text} for m in said])
    tokens = [token for message in said for token in chat.encode(message)]
    assert (*tokens, *chat.prompt()) == whole.tokens


def test_an_answer_ends_with_the_marker_behind_it() -> None:
    chat = format_of(CHATML)
    (end,) = tokenizer(CHATML)("<|im_end|>", add_special_tokens=False)["input_ids"]
    assert end in chat.stop
    answer = chat.encode(Message("assistant", "the answer"))[len(chat.prompt()) :]
    assert chat.decode(answer[: answer.index(end) + 1]) == "the answer"
    assert "file" in chat.decode(chat.encode(Message("user", "the file")))


@pytest.mark.parametrize("text", [FOLDED, LINES])
def test_a_format_that_depends_on_neighbours_is_refused(text: str) -> None:
    with pytest.raises(TemplateRefused):
        format_of(text)


def test_find_model_knows_the_template_of_a_folder(tmp_path: Any) -> None:
    tokenizer(CHATML).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 800}')
    path, chat = find_model(str(tmp_path))
    assert path == tmp_path
    assert isinstance(chat, TemplateFormat)
    assert chat.reliable_span == 700
    (tmp_path / "tokenizer.json").write_text("[]")
    with pytest.raises(ModelLoadError, match="not a tokenizer"):
        find_model(str(tmp_path))
