"""Text as it is shown piece by piece, and tool calls in it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from akv_rsi.server.reader import Reader
from akv_rsi.server.toolcalls import parse

END = 0


def decode(tokens: list[int]) -> str:
    return bytes(tokens).decode(errors="replace")


def read(text: str, sizes: list[int], **marks: tuple[str, ...]) -> tuple[Reader, list[str]]:
    reader, left, shown = Reader(decode, frozenset({END}), **marks), list(text.encode()), []
    for size in sizes:
        shown.append(reader.push(left[:size]))
        left = left[size:]
    shown.append(reader.push([*left, END]))
    return reader, [*shown, reader.close()]


@given(st.text("ab☃é", max_size=30), st.lists(st.integers(1, 4), max_size=12))
def test_the_pieces_are_the_text_and_never_half_a_character(text: str, sizes: list[int]) -> None:
    reader, shown = read(text, sizes)
    assert "".join(shown) == reader.text == text
    assert "\ufffd" not in "".join(shown)


@given(
    st.text("abc", max_size=30),
    st.lists(st.integers(1, 4), max_size=12),
    st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=3),
)
def test_nothing_from_a_stop_string_on_is_shown(
    text: str, sizes: list[int], stops: list[str]
) -> None:
    reader, shown = read(text, sizes, stops=tuple(stops))
    cuts = [at for stop in stops if (at := text.find(stop)) >= 0]
    assert reader.stopped == bool(cuts)
    assert not any(stop in reader.text for stop in stops)
    assert "".join(shown) == reader.text == text[: len(reader.text)]
    if not cuts:
        assert reader.text == text


def test_held_text_is_not_shown_but_kept() -> None:
    reader, shown = read("look: <call>x</call>", [1, 3, 5, 2, 2], hold=("<call>",))
    assert "".join(shown) == "look: "
    assert reader.held == "<call>x</call>"


def test_calls_are_told_from_text_that_only_looks_like_one() -> None:
    text = 'a <tool_call>{"name": "ls", "arguments": {"p": 1}}</tool_call><tool_call>no</tool_call>'
    said = parse(text)
    assert [call["function"]["name"] for call in said.calls] == ["ls"]
    assert said.content == "a <tool_call>no</tool_call>"
    for odd in ("<tool_call>[]</tool_call>", '<tool_call>{"name": 1}</tool_call>', "<tool_call>"):
        assert parse(odd) == (odd, [])
