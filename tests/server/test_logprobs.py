"""Log-probabilities of sampled tokens: the engine's own, told in OpenAI's forms."""

from __future__ import annotations

import math
from collections.abc import Sequence

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import OPENING, service

from akv_rsi.engine.request import Likely, Sampled
from akv_rsi.server.likelihood import Entries, text_logprobs
from akv_rsi.server.wire import ChatRequest
from akv_rsi.types import OpHistory

CHAT = {"model": "reference", "temperature": 1.5, "seed": 4, "max_tokens": 6}
END = 0


def decode(tokens: Sequence[int]) -> str:
    return bytes(token for token in tokens if token != END).decode(errors="replace")


def entries_of(text: str) -> Entries:
    made = Entries(decode, lambda token: f"<{token}>", frozenset({END}))
    for token in [*text.encode(), END]:
        made.push(Sampled((token,), (Likely(-1.0, ((token, -1.0), (END, -2.0))),)))
    return made


@given(st.text("ab☃é", max_size=20), st.integers(0, 20))
def test_the_tokens_are_the_text_each_given_out_once(text: str, at: int) -> None:
    made = entries_of(text)
    told = [*made.before(at), *made.before(len(text))]
    assert "".join(entry.text for entry in told) == text
    assert [entry.start for entry in told] == sorted(entry.start for entry in told)
    assert made.given == told
    assert made.before(999) == []


def test_a_token_without_text_has_its_name() -> None:
    (entry,) = entries_of("a").before(1)
    assert [text for text, _ in entry.top] == ["a", "<0>"]
    assert text_logprobs([entry])["top_logprobs"] == [{"<0>": -2.0, "a": -1.0}]


def test_they_are_what_the_model_says(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        messages=OPENING, logprobs=True, top_logprobs=3, **CHAT
    ).choices[0]
    told = answer.logprobs.content
    assert "".join(entry.token for entry in told) == answer.message.content
    assert bytes(b for entry in told for b in entry.bytes).decode() == answer.message.content
    # The same conversation, computed in one pass.
    made = service()
    prompt, engine = (
        made.jobs.chat(ChatRequest.model_validate({"messages": OPENING}), "").request.tokens,
        made.runner._engine,
    )
    sampled = made.jobs._template.encode(answer.message.content)
    logits = engine.logits([*prompt, *sampled], OpHistory())[len(prompt) - 1 : -1]
    expected = logits.log_softmax(-1)
    for row, token, entry in zip(expected, sampled, told, strict=True):
        assert entry.logprob == pytest.approx(float(row[token]), abs=1e-4)
        best = row.topk(3)
        assert [top.logprob for top in entry.top_logprobs] == pytest.approx(
            best.values.tolist(), abs=1e-4
        )
    made._preparing.shutdown()


def test_a_stream_tells_them_with_their_text(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(messages=OPENING, logprobs=True, **CHAT).choices[0]
    chunks = client.chat.completions.create(messages=OPENING, logprobs=True, stream=True, **CHAT)
    text, told = "", []
    for choice in (chunk.choices[0] for chunk in chunks):
        text += choice.delta.content or ""
        told += choice.logprobs.content if choice.logprobs else []
        assert "".join(entry.token for entry in told) == text
    assert [entry.logprob for entry in told] == pytest.approx(
        [entry.logprob for entry in whole.logprobs.content], abs=1e-4
    )
    assert all(entry.top_logprobs == [] for entry in told)


def test_a_stop_string_cuts_them_with_the_text(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(messages=OPENING, **CHAT).choices[0].message.content
    second = whole.split()[1]
    cut = client.chat.completions.create(
        messages=OPENING, logprobs=True, stop=[second], **CHAT
    ).choices[0]
    starts = [0]
    for entry in cut.logprobs.content:
        starts.append(starts[-1] + len(entry.token))
    assert starts[-2] < len(cut.message.content) <= starts[-1]


def test_plain_completions_have_their_own_form(client: openai.OpenAI) -> None:
    asked = {"model": "reference", "prompt": "find the key", "max_tokens": 4, "temperature": 0}
    answer = client.completions.create(logprobs=2, **asked).choices[0]
    told = answer.logprobs
    assert "".join(told.tokens) == answer.text
    for token, at in zip(told.tokens, told.text_offset, strict=True):
        assert answer.text[at:].startswith(token)
    for token, logprob, top in zip(
        told.tokens, told.token_logprobs, told.top_logprobs, strict=True
    ):
        assert top[token] == max(top.values()) == logprob  # greedy
        assert sum(map(math.exp, top.values())) <= 1
    assert client.completions.create(**asked).choices[0].logprobs is None


@pytest.mark.parametrize(
    "fields",
    [{"top_logprobs": 2}, {"logprobs": True, "top_logprobs": 21}, {"logprobs": 3}],
    ids=str,
)
def test_what_makes_no_sense_is_refused(client: openai.OpenAI, fields: dict) -> None:
    with pytest.raises(openai.BadRequestError, match="logprobs"):
        client.chat.completions.create(messages=OPENING, extra_body=fields, **CHAT)
