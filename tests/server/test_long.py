"""Conversations far longer than the model's positions."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from serving import service, serving, turns

from akv_rsi.server.limits import ServerConfig


def long(calls: int, stride: int) -> dict[str, Any]:
    """A request whose client drops all but the latest turns every ``stride`` messages."""
    messages = turns(calls)
    ends = range(stride, len(messages), stride)
    drops = {str(end): list(range(max(2, end - stride - 1), end - 1)) for end in ends}
    return {"messages": messages, "drop_message": drops, "reposition": list(ends), "max_tokens": 4}


@pytest.mark.parametrize(
    ("calls", "stride", "pages"),
    [(100, 50, 128), pytest.param(4998, 500, 4096, marks=pytest.mark.slow)],
    ids=["200 messages", "10,000 messages"],
)
def test_what_is_dropped_in_time_needs_no_positions(calls: int, stride: int, pages: int) -> None:
    body = long(calls, stride)
    with serving(service(ServerConfig(max_messages=10_000), pages=pages)) as served:
        url = f"{served.url}/v1/chat/completions"
        first = httpx2.post(url, json=body, timeout=600)
        body["messages"] += turns(1)[2:]
        then = httpx2.post(url, json=body, timeout=600)
        served.balanced()
    assert (first.status_code, then.status_code) == (200, 200), first.text[:500] + then.text[:500]
    usage = [answer.json()["usage"] for answer in (first, then)]
    dropped = sum(map(len, body["drop_message"].values()))
    for told in usage:
        skipped = told["prompt_tokens_details"]["drop_skipped_tokens"]
        assert 5 * dropped <= skipped <= 6 * dropped  # answers have five tokens, results six
    cached = usage[1]["prompt_tokens_details"]["cached_tokens"]
    assert cached >= usage[0]["prompt_tokens"] - 5


def test_too_many_messages_are_a_clear_400() -> None:
    with serving(service(ServerConfig(max_messages=5))) as served:
        body = {"messages": turns(2), "max_tokens": 1}
        answer = httpx2.post(f"{served.url}/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "too_many_messages"
    assert "more than the 5" in answer.json()["error"]["message"]
