"""Conversations that grow are tokenised piece by piece, and come out as if at once."""

from __future__ import annotations

from typing import Any

import pytest
from chats import CHATML, FOLDED, HEADERS, LINES, MOVED_TOOLS, THINKING, tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken

from akv_rsi.tasks.encoding import Encoder
from akv_rsi.tasks.template import ChatTemplate

SAID = st.text(" \n\tae1é😀<|>_", max_size=12) | st.sampled_from(
    ["<|im_start|>user\n", "<|im_end|>", "done<|im_", "<end> ", "x <turn>", "  \n\n"]
)


class Watched:
    """A tokenizer that notes how many characters it was given."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.given: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def __call__(self, text: str, **options: Any) -> Any:
        self.given.append(len(text))
        return self._tokenizer(text, **options)


def talk(said: list[str]) -> list[dict[str, str]]:
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": f"- {text}"} for i, text in enumerate(said)]


@pytest.mark.parametrize("text", [CHATML, HEADERS, FOLDED, THINKING, MOVED_TOOLS, LINES])
@given(st.lists(SAID, min_size=2, max_size=9), SAID)
@settings(max_examples=25, deadline=None)
def test_a_conversation_that_grows_and_forks_has_the_tokens_it_has_at_once(
    text: str, said: list[str], other: str
) -> None:
    grown = ChatTemplate(tokenizer(text))
    for count in range(1, len(said) + 1, 2):
        for words in (said[:count], [*said[: count - 1], other]):
            found = grown.render(talk(words))
            at_once = tokenizer(text)(
                found.written.text, add_special_tokens=False, return_offsets_mapping=True
            )
            assert found.tokens == tuple(at_once["input_ids"])
            assert found.offsets == tuple(start for start, _ in at_once["offset_mapping"])


def test_only_what_is_new_is_tokenised() -> None:
    watched = Watched(tokenizer(CHATML))
    grown = ChatTemplate(watched)
    said = ["a long text " * 50] * 6
    grown.render(talk(said[:2]))
    before = len(watched.given)
    rendered = grown.render(talk(said[:4]))
    (given,) = watched.given[before:]
    assert given == len(rendered.written.text) - rendered.written.starts[2]


def test_what_one_owner_sent_saves_another_no_work() -> None:
    """Hit or miss would otherwise show in the time of an answer."""
    watched = Watched(tokenizer(CHATML))
    template = ChatTemplate(watched)
    rendered: list[int] = []
    template.pause = lambda: rendered.append(1)

    def work(owner: str, said: list[str]) -> tuple[int, int]:
        """Renderings of the template, and characters tokenised."""
        before = len(rendered), sum(watched.given)
        template.render(talk(said), owner=owner)
        return len(rendered) - before[0], sum(watched.given) - before[1]

    known, unknown = [["ada said it "] * 8, ["eve said it "] * 8]
    first = work("ada", known)
    assert work("bob", known) == work("bob", unknown)
    again = work("ada", known)
    assert again[0] < first[0], "her own is found: the test would see a hit"
    assert again[1] < first[1]


def test_what_is_remembered_is_bounded_and_none_of_it_is_needed() -> None:
    text = "<|im_start|>user\nYes<|im_end|>\n" * 6 + "<|im_start|>assistant\n"
    starts = [31 * i for i in range(7)]
    small, large = Encoder(tokenizer(CHATML), most=8), Encoder(tokenizer(CHATML))
    for count in range(1, 7):
        end = starts[count]
        part = text[:end] + text[starts[6] :]
        assert small.encode(part, starts[: count + 1]) == large.encode(part, starts[: count + 1])
    assert small._size <= 8
    assert len(large._known) == 1
    assert large._size == sum(len(known.tokens) for known in large._known.values()) > 8


@pytest.mark.parametrize(
    ("token", "proved"),
    [
        (AddedToken("<|cut|>", normalized=False), True),
        (AddedToken("<|cut|>", normalized=False, lstrip=True), False),
        (AddedToken("<|cut|>", normalized=False, single_word=True), False),
        (AddedToken("<|cut|>", normalized=True), False),
        (AddedToken("/head|>", normalized=False), False),  # part of another one
        (AddedToken("n_end|><", normalized=False), True),
    ],
    ids=["usual", "eats space", "by words", "normalised", "inside another", "unlike others"],
)
def test_a_token_that_need_not_part_its_neighbours_is_not_relied_on(
    token: AddedToken, proved: bool
) -> None:
    from copy import deepcopy

    made = deepcopy(tokenizer(CHATML))
    made.add_tokens([token])
    text = f"Yes{token.content}Yes"
    assert Encoder(made)._cuts(text, 3) is proved
    assert not Encoder(made)._cuts(text, 2)


def test_a_token_whose_beginning_ends_another_is_not_relied_on() -> None:
    from copy import deepcopy

    made = deepcopy(tokenizer(CHATML))
    made.add_tokens([AddedToken("x<|im_", normalized=False)])
    assert not Encoder(made)._cuts("<|im_start|>user", 0)
    assert Encoder(made)._cuts("<|im_end|>", 0) is False
    assert Encoder(made)._cuts("<turn>", 0)
