"""The tree's three branches, and where each begins."""

from __future__ import annotations

import pytest
from conversations import Talk, opening

from akv_rsi.errors import ConfigError
from akv_rsi.policies import library
from akv_rsi.policies.editor import Edit
from akv_rsi.types import Drop, Op, Repos


def decided(talk: Talk, **tunables: float) -> Edit | tuple[Op, ...]:
    return library.decider(library.spec("decision_tree", **tunables))(talk.snapshot())


def marked(*turns: bool, reliable_span: int = 60) -> Talk:
    """An opening of 20 tokens, then turns of 5 and 10, whose results are marked or not."""
    talk = opening(reliable_span=reliable_span)
    for ephemeral in turns:
        talk.call()
        talk.result(ephemeral=ephemeral)
    return talk


def test_below_the_threshold_it_matches_prefixes() -> None:
    assert decided(marked(True, True)) == ()
    # 65 tokens, one above the limit at which it starts.
    assert decided(marked(True, True, True), limit=65 / 60) == ()
    assert decided(marked(True, True, True), limit=64 / 60) != ()


def test_above_it_what_is_marked_goes_and_the_gaps_close() -> None:
    talk = marked(True, False, True, True)
    assert decided(talk) == (Drop(70, ((25, 35), (55, 65))), Repos(70))
    assert decided(talk, keep=2) == (Drop(70, ((25, 35),)), Repos(70))
    assert decided(talk, keep=3) == (Drop(70, ((25, 35),)), Repos(70))


def test_what_is_attended_counts_not_the_text() -> None:
    talk = marked(True, False, True, True)
    ops = decided(talk)
    assert isinstance(ops, tuple)
    talk.apply(ops)
    assert decided(talk) == ()  # 60 of 80 tokens are left


def test_without_marks_it_has_old_turns_summed_up() -> None:
    talk = marked(*[False] * 5)
    assert decided(talk, recent=2) == Edit(summarise=(1, 2, 3, 4, 5, 6, 7))
    assert decided(talk, recent=2) == library.editor("summarise", keep=2).edit(talk.snapshot())
    # Old turns that hold too little of the text are not worth it.
    assert decided(talk, recent=5) == ()


def test_an_edit_takes_what_had_been_dropped_with_it() -> None:
    """Its ops are undone with the text they stood in: else the marked results would come back."""
    talk = marked(False, False, False, True, True)
    ops = decided(talk)
    assert ops == (Drop(85, ((70, 80),)), Repos(85))
    talk.apply(ops)
    for _ in range(2):
        talk.call()
        talk.result()
    assert decided(talk, keep=16, recent=4) == Edit(remove=(9,), summarise=(1, 2, 3, 4, 5, 6, 7))


def test_it_is_neither_a_plain_editor_nor_in_the_default_rows() -> None:
    assert "decision_tree" not in library.names()
    assert "decision_tree" in library.on_request()
    with pytest.raises(ConfigError, match="no text-editing policy"):
        library.editor("decision_tree")
    with pytest.raises(ConfigError, match="no tunable batch"):
        library.spec("decision_tree", batch=1)
