"""Tenants: keys, limits, and caches that tell nothing about each other."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx2
import openai
import pytest
from serving import OPENING, Served, service, serving, turns

from akv_rsi.errors import ConfigError
from akv_rsi.server.limits import ServerConfig
from akv_rsi.server.refusal import Refusal
from akv_rsi.server.tenants import Gate, Tenants
from akv_rsi.tasks.suites.words import VALUES

CHAT = {"model": "reference", "temperature": 0, "max_tokens": 2}
KEYS = {"ada": "key-of-ada", "bob": "key-of-bob"}
TRIALS = 16
SHARED = json.dumps({name: {"keys": ["0" * 64]} for name in KEYS})


def about(word: str) -> list[dict[str, Any]]:
    """A conversation that differs from those about other words from its first token on."""
    return [{"role": "user", "content": f"{word} " * 60}, *turns(6, word)[2:]]


def key_file(folder: Path, **limits: int) -> Path:
    file = folder / "keys.json"
    digests = {name: hashlib.sha256(key.encode()).hexdigest() for name, key in KEYS.items()}
    file.write_text(json.dumps({name: {"keys": [d], **limits} for name, d in digests.items()}))
    return file


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    tenants = Tenants.load(key_file(tmp_path_factory.mktemp("keys"), max_context=2000))
    with serving(service(tenants=tenants)) as served:
        yield served


def test_only_known_keys_are_let_in(locked: Served) -> None:
    assert locked.client(KEYS["ada"]).chat.completions.create(messages=OPENING, **CHAT).choices
    for key in ("wrong", KEYS["ada"] + "x"):
        with pytest.raises(openai.AuthenticationError):
            locked.client(key).chat.completions.create(messages=OPENING, **CHAT)
        with pytest.raises(openai.AuthenticationError):
            locked.client(key).models.list()
    assert httpx2.get(f"{locked.url}/v1/models").status_code == 401
    assert httpx2.get(f"{locked.url}/health").status_code == 200


def test_what_another_tenant_has_cached_is_computed_like_what_nobody_has(locked: Served) -> None:
    """Hit or miss of ada's prefix is the same work for bob: token by token, pass by pass."""
    ada, bob = locked.client(KEYS["ada"]), locked.client(KEYS["bob"])
    bob.chat.completions.create(messages=about(VALUES[-1]), **CHAT)  # bob has the header himself
    ada.chat.completions.create(messages=about(VALUES[-2]), **CHAT)

    def work(client: openai.OpenAI, word: str) -> tuple[dict[str, int], dict[str, int]]:
        before = locked.service.runner.stats
        answer = client.chat.completions.create(messages=about(word), **(CHAT | {"max_tokens": 1}))
        locked.balanced()
        after = locked.service.runner.stats
        counted = ("computed_tokens", "cached_tokens", "passes", "rows", "matched_exact")
        spent = {name: getattr(after, name) - getattr(before, name) for name in counted}
        return spent, answer.usage.prompt_tokens_details.model_dump()

    known, unknown = work(bob, VALUES[-2]), work(bob, VALUES[-3])
    assert known == unknown
    assert known[0]["cached_tokens"] <= 1 < 100 < known[0]["computed_tokens"]
    assert work(ada, VALUES[-2])[0]["cached_tokens"] > 100  # to be found it was


@pytest.mark.slow
def test_the_time_of_an_answer_does_not_tell_what_another_tenant_has_cached(locked: Served) -> None:
    ada, bob = locked.client(KEYS["ada"]), locked.client(KEYS["bob"])
    known, unknown = VALUES[:TRIALS], VALUES[TRIALS : 2 * TRIALS]
    for word in known:
        ada.chat.completions.create(messages=about(word), **CHAT)
    spent: dict[str, list[float]] = {"known": [], "unknown": []}
    # In turn, so that whatever else the machine does falls on both alike.
    for trial, pair in enumerate(zip(known, unknown, strict=True)):
        order = zip(spent, pair, strict=True)
        for kind, word in order if trial % 2 else reversed(list(order)):
            began = perf_counter()
            answer = bob.chat.completions.create(messages=about(word), **CHAT)
            spent[kind].append(perf_counter() - began)
            assert answer.usage.prompt_tokens_details.cached_tokens <= 1
    # A sign test: neither kind is faster more often than chance has it (p > .0005).
    faster = sum(k < u for k, u in zip(*spent.values(), strict=True))
    assert 2 <= faster <= TRIALS - 2
    # The test would see a leak: what ada has herself, she gets sooner.
    own = []
    for word in known:
        began = perf_counter()
        ada.chat.completions.create(messages=about(word), **CHAT)
        own.append(perf_counter() - began)
    assert sum(o < u for o, u in zip(own, spent["unknown"], strict=True)) > TRIALS - 2


def test_a_session_is_for_its_tenant_alone(locked: Served) -> None:
    answer = locked.client(KEYS["ada"]).chat.completions.create(messages=OPENING, **CHAT)
    url = f"{locked.url}/v1/sessions/{answer.model_extra['akv']['session']}"
    assert httpx2.get(url, headers={"authorization": f"Bearer {KEYS['ada']}"}).status_code == 200
    assert httpx2.get(url, headers={"authorization": f"Bearer {KEYS['bob']}"}).status_code == 404


def test_a_context_beyond_the_tenant_s_is_refused(locked: Served) -> None:
    long = [*OPENING, {"role": "user", "content": "key " * 2000}]
    with pytest.raises(openai.BadRequestError, match="2000 tokens"):
        locked.client(KEYS["ada"]).chat.completions.create(messages=long, **CHAT)


def test_places_are_counted_per_tenant_and_in_all() -> None:
    gate = Gate(Tenants({}, {}), most=65)
    held = [gate.entered("ada") for _ in range(64)]
    for place in held:
        place.__enter__()
    with pytest.raises(Refusal, match="64 requests") as told, gate.entered("ada"):
        pass
    assert told.value.status == 429
    with gate.entered("bob"), pytest.raises(Refusal, match="full"), gate.entered("eve"):
        pass
    for place in held:
        place.__exit__(None, None, None)
    assert gate.inside == 0


def test_without_keys_only_the_server_s_places_count() -> None:
    gate = Gate(Tenants(), most=100)
    held = [gate.entered("") for _ in range(100)]
    for place in held:
        place.__enter__()
    with pytest.raises(Refusal, match="full"), gate.entered(""):
        pass


def test_a_full_server_says_429_and_when_to_come_back() -> None:
    with serving(service(ServerConfig(max_in_work=1))) as served:
        slow = served.client().chat.completions.create(
            messages=OPENING, model="reference", max_tokens=400, temperature=2, stream=True,
            extra_body={"stop": []},
        )  # fmt: skip
        with pytest.raises(openai.RateLimitError) as told:
            served.client().chat.completions.create(messages=OPENING, **CHAT)
        assert told.value.response.headers["retry-after"] == "1"
        slow.close()
        served.balanced()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[]", "must hold"),
        ("{", "must hold"),
        ('{"ada": {}}', "must hold"),
        ('{"ada": {"keys": ["key-of-ada"]}}', "never the key itself"),
        ('{"ada": {"keys": [], "max": 1}}', "unknown TenantLimits keys: max"),
        ('{"ada": {"keys": [], "max_in_work": 0}}', "max_in_work is 0"),
        (SHARED, "in common"),
    ],
)
def test_a_faulty_key_file_is_told(tmp_path: Path, content: str, says: str) -> None:
    file = tmp_path / "keys.json"
    file.write_text(content)
    with pytest.raises(ConfigError, match=says):
        Tenants.load(file)


def test_nothing_secret_is_logged(locked: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for key in (KEYS["ada"], "wrong-key"):
            httpx2.post(
                f"{locked.url}/v1/chat/completions?token=in-the-query",
                json={"messages": [{"role": "user", "content": "my-secret"}], "temperature": 9},
                headers={"authorization": f"Bearer {key}"},
            )
    told = "\n".join(
        r.getMessage() for r in caplog.records if r.name.startswith(("uvicorn", "akv"))
    )
    for secret in (KEYS["ada"], "wrong-key", "my-secret", "in-the-query"):
        assert secret not in told
