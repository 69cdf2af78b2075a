"""Records of conversations: the latest, and no more than there is room for."""

from __future__ import annotations

import pytest
from serving import service, turns

from akv_rsi.server.service import Service
from akv_rsi.server.sessions import Session, Sessions
from akv_rsi.server.wire import ChatRequest
from akv_rsi.types import OpHistory


@pytest.fixture(scope="module")
def made() -> Service:
    return service()


def session(made: Service, calls: int) -> Session:
    prompt = made.jobs.chat(ChatRequest.model_validate({"messages": turns(calls)}), "ada").prompt
    return Session("ada", prompt, OpHistory(), None, {})


def kept(sessions: Sessions, names: str) -> str:
    return "".join(name for name in names if sessions.get(name, "ada"))


def test_the_least_recently_used_go_first(made: Service) -> None:
    sessions = Sessions(2, 10**6)
    for name in "abab":
        sessions.put(name, session(made, 1))
    sessions.put("a", session(made, 2))
    sessions.put("c", session(made, 1))
    assert kept(sessions, "abc") == "ac"
    assert sessions.get("a", "bob") is None


def test_long_ones_take_the_place_of_several_and_the_latest_stays(made: Service) -> None:
    sessions = Sessions(9, 100)  # each call has 11 tokens, the opening 11, the header 1
    for name in "abcd":
        sessions.put(name, session(made, 1))
    assert kept(sessions, "abcd") == "abcd"
    sessions.put("d", session(made, 3))
    assert kept(sessions, "abcd") == "bcd"
    sessions.put("e", session(made, 20))
    assert kept(sessions, "abcde") == "e"
