"""OpenAI's API as its own client sees it."""

from __future__ import annotations

import openai
import pytest
from serving import OPENING, Served, turns

CHAT = {"model": "reference", "temperature": 0, "max_tokens": 6}


def test_a_chat_is_answered_with_its_usage(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(messages=OPENING, **CHAT)
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage.prompt_tokens == 6 + 5 + 1
    assert 1 <= answer.usage.completion_tokens <= 6
    assert answer.usage.total_tokens == 12 + answer.usage.completion_tokens


def test_a_stream_says_what_the_whole_answer_says(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(messages=OPENING, **CHAT)
    chunks = list(
        client.chat.completions.create(
            messages=OPENING, stream=True, stream_options={"include_usage": True}, **CHAT
        )
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert reasons[-1] == whole.choices[0].finish_reason
    assert set(reasons[:-1]) == {None}
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert len({c.id for c in chunks}) == 1


def test_a_stop_string_ends_the_answer_before_it(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(messages=OPENING, **CHAT).choices[0].message.content
    first, second = whole.split()[:2]
    cut = client.chat.completions.create(messages=OPENING, stop=[second], **CHAT).choices[0]
    assert cut.message.content == f"{first} "
    assert cut.finish_reason == "stop"


def test_a_seed_repeats_a_sampled_answer(client: openai.OpenAI) -> None:
    def said(seed: int) -> str:
        warm = CHAT | {"temperature": 2.0, "seed": seed}
        return client.chat.completions.create(messages=OPENING, **warm).choices[0].message.content

    assert said(7) == said(7)
    assert len({said(seed) for seed in range(4)}) > 1


def test_a_resent_conversation_is_read_from_the_cache(client: openai.OpenAI) -> None:
    messages = turns(4, "cache")
    client.chat.completions.create(messages=messages, **CHAT)
    later = [*messages, {"role": "user", "content": "next"}]
    usage = client.chat.completions.create(messages=later, **CHAT).usage
    assert usage.prompt_tokens_details.cached_tokens >= usage.prompt_tokens - 5


def test_plain_text_and_tokens_are_completed(client: openai.OpenAI) -> None:
    text = client.completions.create(model="reference", prompt="find the key", max_tokens=3)
    tokens = client.completions.create(model="reference", prompt=[2, 452, 5, 4], max_tokens=3)
    assert text.usage.prompt_tokens == 3
    assert tokens.usage.prompt_tokens == 4
    streamed = client.completions.create(
        model="reference", prompt=[2, 452, 5, 4], max_tokens=3, temperature=0, stream=True
    )
    assert [c.choices[0].finish_reason for c in streamed][-1] in ("stop", "length")


def test_the_model_is_listed_and_another_is_not_found(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["reference"]
    with pytest.raises(openai.NotFoundError, match="use 'reference'"):
        client.chat.completions.create(messages=OPENING, **(CHAT | {"model": "gpt"}))


@pytest.mark.parametrize(
    "field",
    [
        {"n": 2},
        {"top_p": 0.5},
        {"presence_penalty": 1},
        {"logit_bias": {"5": 1}},
        {"response_format": {"type": "json_object"}},
        {"tool_choice": "required"},
    ],
    ids=lambda field: next(iter(field)),
)
def test_what_cannot_be_honoured_is_refused(client: openai.OpenAI, field: dict) -> None:
    with pytest.raises(openai.BadRequestError, match=next(iter(field))):
        client.chat.completions.create(messages=OPENING, **(CHAT | field))


def test_health_and_metrics_are_told(plain: Served) -> None:
    import httpx2

    assert httpx2.get(f"{plain.url}/health").json() == {"status": "ok", "model": "reference"}
    plain.client().chat.completions.create(messages=OPENING, **CHAT)
    page = httpx2.get(f"{plain.url}/metrics").text
    assert 'akv_answers_total{status="200"}' in page
    assert "akv_ttft_seconds_bucket" in page
    for name in ("cached_tokens", "recovered_tokens", "evicted_pages", "matched_exact"):
        assert f"akv_engine_{name}_total" in page
    plain.balanced()
