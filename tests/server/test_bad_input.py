"""Whatever a client sends: a right answer or a clear refusal, and a server that goes on."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from serving import OPENING, Served, service, serving, turns, wait_until

from akv_rsi.server.limits import ServerConfig

CHAT = {"model": "reference", "max_tokens": 2, "temperature": 0}
PATH = "/v1/chat/completions"


def post(served: Served, content: bytes, path: str = PATH) -> httpx2.Response:
    headers = {"content-type": "application/json"}
    return httpx2.post(f"{served.url}{path}", content=content, headers=headers, timeout=120)


def asked(**fields: Any) -> bytes:
    return json.dumps({"messages": turns(2), **CHAT, **fields}).encode()


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"null", 400),
        (b'"text"', 400),
        (b"{}", 400),
        (b"\xff\xfe{}", 400),
        (b'{"messages": [{"role": "user", "content": "\xff"}]}', 400),
        (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', 400),
        (b'{"messages": [], "tools": [{"a": "\\ud800"}]}', 400),
        (b"[" * 100_000, 400),
        (asked(messages="hello"), 400),
        (asked(messages=[1]), 400),
        (asked(messages=[{"role": "robot", "content": "x"}]), 400),
        (asked(messages=[{"role": "user", "content": 7}]), 400),
        (asked(messages=[{"role": "user", "content": [{"type": "image_url"}]}]), 400),
        (asked(messages=[{"role": "assistant", "tool_calls": [{"id": 1}]}]), 400),
        (asked(max_tokens="many"), 400),
        (asked(max_tokens=0), 400),
        (asked(temperature=-1), 400),
        (b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}', 400),
        (asked(stop=[1]), 400),
        (asked(stream="perhaps"), 400),
        (asked(drop_message={"x": [1]}), 400),
        (asked(drop_message={"1": "x"}), 400),
        (asked(drop_message={"99": [1]}), 400),
        (asked(drop_message={"3": [4]}), 400),
        (asked(drop_message={"4": [0]}), 400),
        (asked(drop_message={"4": [2, 2]}), 400),
        (asked(drop_message={"-1": [2]}), 400),
        (asked(reposition=[-1]), 400),
        (asked(cache_ops=[{"op": "explode", "after": 1}]), 400),
        (asked(cache_ops=[{"op": "drop", "after": 4, "messages": [2], "also": 1}]), 400),
        (asked(cache_ops=[{"op": "drop", "boundary": 10**30, "ranges": [[0, 1]]}]), 400),
        (asked(cache_ops=[{"op": "drop", "after": 4, "ranges": [[12, 10**30]]}]), 400),
        (asked(cache_ops=[{"op": "repos", "after": 4}] * 2001), 400),
        (asked(drop_rule={"type": "other"}), 400),
        (asked(messages=[{"role": "user", "content": "x"}] * 10_000), 400),
        (asked(messages=[{"role": "user", "content": "x " * 5000}]), 400),
        # Odd, and right.
        (asked(seed=10**40, unknown_field={"a": [1]}), 200),
        (asked(messages=[{"role": "user", "content": ""}]), 200),
        (asked(messages=[{"role": "user", "content": None}]), 200),
        (asked(messages=[{"role": "assistant", "content": "open"}]), 200),
        (asked(messages=[{"role": "tool", "content": "<end> </end> {{ x }} \x00 ☃"}]), 200),
        (asked(messages=[{"role": "user", "content": [{"type": "text", "text": "x"}]}]), 200),
        (asked(max_tokens=10**30, stop="ready"), 200),
        (asked(temperature=1e-300, max_tokens=1), 200),
    ],
)
def test_a_chat_gets_an_answer_or_a_reason(plain: Served, content: bytes, status: int) -> None:
    answer = post(plain, content)
    assert answer.status_code == status, answer.text
    if status == 200:
        assert answer.json()["choices"][0]["finish_reason"] in ("stop", "length")
    else:
        error = answer.json()["error"]
        assert error["type"] == "invalid_request_error"
        assert 0 < len(error["message"]) < 400
        assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"prompt": ""}, 400),
        ({"prompt": []}, 400),
        ({"prompt": [[1], [2]]}, 400),
        ({"prompt": [2**70]}, 400),
        ({"prompt": [-1]}, 400),
        ({"prompt": [1, 2, "x"]}, 400),
        ({"prompt": [1] * 5000}, 400),
        ({"prompt": [1, 2, 3], "cache_ops": [{"op": "repos", "after": 1}]}, 400),
        ({"prompt": [1, 2, 3], "cache_ops": [{"op": "repos", "boundary": 4}]}, 400),
        ({"prompt": [1, 2, 3], "best_of": 3}, 400),
        (
            {
                "prompt": list(range(1, 12)),
                "cache_ops": [{"op": "drop", "boundary": 8, "ranges": [[5, 7]]}],
            },
            200,
        ),
    ],
)
def test_a_completion_gets_an_answer_or_a_reason(plain: Served, fields: dict, status: int) -> None:
    body = {"model": "reference", "max_tokens": 2, **fields}
    answer = post(plain, json.dumps(body).encode(), "/v1/completions")
    assert answer.status_code == status, answer.text


def test_other_paths_and_methods_are_refused_in_the_same_form(plain: Served) -> None:
    for answer in (httpx2.get(f"{plain.url}/v2"), httpx2.get(f"{plain.url}{PATH}")):
        assert answer.status_code in (404, 405)
        assert answer.json()["error"]["type"] == "invalid_request_error"


def test_a_body_beyond_the_limit_is_413(plain: Served) -> None:
    with serving(service(ServerConfig(max_body=10_000))) as small:
        answer = post(small, asked(messages=[{"role": "user", "content": "x" * 20_000}]))
        assert answer.status_code == 413
        assert answer.json()["error"]["type"] == "request_too_large"
        assert post(small, asked()).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_takes_its_request_with_it(plain: Served, stream: bool) -> None:
    cancelled = plain.service.runner.stats.requests
    endless = {"max_tokens": 3000, "temperature": 2, "stream": stream, "seed": 1}
    body = json.dumps({"model": "reference", "messages": OPENING, **endless}).encode()
    where = urlsplit(plain.url)
    with socket.create_connection((where.hostname, where.port)) as line:
        head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        line.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        wait_until(lambda: plain.service.runner.in_work > 0)
    wait_until(lambda: plain.service.runner.in_work == 0)
    plain.balanced()
    assert plain.service.runner.stats.requests == cancelled


def test_a_shutdown_answers_what_is_in_work(plain: Served) -> None:
    rest: list[Any] = []
    with serving(service()) as served:
        stream = served.client().chat.completions.create(
            messages=OPENING, model="reference", max_tokens=12, temperature=2, seed=3, stream=True
        )
        first = next(stream)
        finished = threading.Thread(target=lambda: rest.extend(stream))
        finished.start()
    finished.join(60)
    assert first.choices[0].delta.role == "assistant"
    assert rest[-1].choices[0].finish_reason in ("stop", "length")


@pytest.mark.parametrize("method", ["submit", "step"])
def test_a_broken_engine_is_a_500_and_unhealthy(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    made = service()

    def broken(*_: object) -> None:
        raise RuntimeError("out of luck")

    with serving(made) as served:
        monkeypatch.setattr(made.runner._engine, method, broken)
        for _ in range(2):
            answer = post(served, asked())
            assert answer.status_code == 500
            assert "out of luck" in answer.json()["error"]["message"]
        assert httpx2.get(f"{served.url}/health").status_code == 503
