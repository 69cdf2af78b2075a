"""Recall: what is asked, what is done to the transcript, and that engine rows are the oracle's."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from chats import CHATML, tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from akv_rsi.cli import run
from akv_rsi.config import EngineConfig
from akv_rsi.engine.engine import Engine
from akv_rsi.engine.model import Model
from akv_rsi.errors import ConfigError
from akv_rsi.policies import library
from akv_rsi.tasks.environment import Message
from akv_rsi.tasks.pretrained import TemplateFormat
from akv_rsi.tasks.recall.attention import attending, stock_mass
from akv_rsi.tasks.recall.measure import ask, measure, said
from akv_rsi.tasks.recall.policy import by_policy
from akv_rsi.tasks.recall.table import rows
from akv_rsi.tasks.recall.transcript import Recall, recall
from akv_rsi.tasks.recall.variants import STUDY, VARIANTS, Prompt, values
from akv_rsi.tasks.reference.model import load_reference
from akv_rsi.tasks.template import ChatTemplate
from akv_rsi.types import Drop, OpHistory, Refresh, Repos
from akv_rsi.visibility import Visibility

# Nothing but the end of the line ends a message.
LINES = """\
{%- for m in messages -%}{{ m.role }}: {{ m.content }}
{% endfor -%}{%- if add_generation_prompt -%}assistant:{% endif -%}"""
CHAT = TemplateFormat(ChatTemplate(tokenizer(CHATML)), 4000)
ALL = {**VARIANTS, **STUDY}


def random_model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer(CHATML)),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        initializer_range=0.3,
    )
    return LlamaForCausalLM(config)


@pytest.fixture(scope="module")
def engine() -> Engine:
    config = EngineConfig(pages=512, self_test=False, working_set_mib=0, threads=1)
    return Engine(Model.from_pretrained(random_model(), config), config)


@pytest.fixture(scope="module")
def made() -> Recall:
    return recall(0, 1200, CHAT)


def prompt(name: str, made: Recall) -> Prompt:
    return ALL[name](made, CHAT, lambda tokens: Message("assistant", "a summary"))


def text(tokens: Any) -> str:
    return str(tokenizer(CHATML).decode(list(tokens)))


@pytest.mark.parametrize("template", [CHATML, LINES])
def test_an_answer_is_scored_whole_and_without_its_end(template: str) -> None:
    chat = TemplateFormat(ChatTemplate(tokenizer(template)), 4000)
    assert chat.decode(said(chat, "The code is 4711.")).strip() == "The code is 4711."


def test_a_vocabulary_without_numbers_is_refused() -> None:
    with pytest.raises(ConfigError, match="no numbers"):
        said(load_reference()[1], "4711")


def test_facts_are_where_they_are_said_to_be(made: Recall) -> None:
    assert 700 < len(made.tokens) <= 1200
    assert made.spans[-1][1] == len(made.tokens)
    assert len({fact.value + fact.name for fact in made.facts}) == len(made.facts)
    for fact in made.facts:
        result, note = (
            text(made.tokens[slice(*made.spans[at[fact.record]])])
            for at in (made.results, made.notes)
        )
        assert fact.value in result
        assert (fact.value in note) == fact.noted
    assert {fact.noted for fact in made.facts} == {True, False}
    assert recall(0, 1200, CHAT) == made != recall(1, 1200, CHAT)


def test_variants_do_what_they_are_called(made: Recall) -> None:
    results = [made.spans[i] for i in made.results]
    gone = sum(end - start for start, end in results)
    length = len(made.tokens)
    assert prompt("full", made) == Prompt(made.tokens, OpHistory(), 0)
    assert prompt("drop", made).history.ops == (Drop(length, tuple(results)),)
    assert prompt("drop", made).attended == length - gone
    both = prompt("drop+refresh+repos", made)
    assert [type(op) for op in both.history] == [Drop, Repos, Refresh]
    assert both.prefilled == sum(b - a for a, b in (made.spans[i] for i in made.notes))
    trimmed = prompt("trim", made)
    assert len(trimmed.tokens) == length - gone
    assert trimmed.prefilled == len(trimmed.tokens) - results[0][0]
    short = prompt("truncate", made)
    assert len(short.tokens) <= length // 2 + made.spans[0][1]
    assert short.tokens[: made.spans[0][1]] == made.tokens[: made.spans[0][1]]
    assert "a summary" in text(prompt("summarise", made).tokens)


def test_the_study_refreshes_less(made: Recall) -> None:
    sizes = {name: prompt(name, made).prefilled for name in (*STUDY, "drop+refresh")}
    numbers, words, note = (
        sizes[k] for k in ("refresh numbers", "refresh words of the result", "drop+refresh")
    )
    assert 0 < numbers < words < note < sizes["refresh all behind"]
    (refresh,) = [op for op in prompt("refresh numbers", made).history if isinstance(op, Refresh)]
    told = text(t for a, b in refresh.ranges for t in made.tokens[a:b])
    noted = "".join(fact.value for fact in made.facts if fact.noted)
    assert "".join(c for c in told if c.isdigit()) == noted


def test_the_most_attending_are_as_many_as_the_numbers(made: Recall, tmp_path: Any) -> None:
    random_model().save_pretrained(tmp_path)
    shares = stock_mass(tmp_path)(made)
    first, last = made.results[0], made.notes[-1]
    assert shares[: made.spans[first][0]].max() == 0
    assert 0 < shares[made.spans[last][0]] < 1
    ranges = attending(lambda _: shares)(made, CHAT)
    assert sum(b - a for a, b in ranges) == sum(b - a for a, b in values(made, CHAT))
    spans = [made.spans[i] for i in made.notes]
    assert all(any(low <= a and b <= high for low, high in spans) for a, b in ranges)
    falling = np.arange(len(made.tokens), 0, -1.0)
    assert attending(lambda _: falling)(made, CHAT)[0][0] == spans[0][0]


@pytest.mark.parametrize("name", ["full", "trim", "drop+refresh", "refresh numbers"])
def test_answers_are_those_of_a_pass_without_a_cache(
    engine: Engine, made: Recall, name: str
) -> None:
    found, facts = prompt(name, made), made.facts[:5]
    engine.reset()
    asked = ask(engine, CHAT, facts, found)
    for fact, answer in zip(facts, asked.answers, strict=True):
        question = (*CHAT.encode(fact.question), *CHAT.prompt())
        gold = tokenizer(CHATML)(fact.value, add_special_tokens=False)["input_ids"]
        tokens = (*found.tokens, *question, *gold)
        scores = engine.logits(tokens, found.history)[-len(gold) - 1 : -1].log_softmax(-1)
        expected = scores[range(len(gold)), gold].sum()
        assert answer.likely == pytest.approx(float(expected), abs=1e-3)
        assert answer.exact == (scores.argmax(-1).tolist() == gold)
    engine.check()


def test_a_lead_begins_the_answer(engine: Engine, made: Recall) -> None:
    fact = made.facts[0]
    engine.reset()
    (answer,) = ask(engine, CHAT, [fact], prompt("full", made), lead=True).answers
    header = len(CHAT.prompt())
    led, told = (
        CHAT.encode(Message("assistant", text))[header:-2]
        for text in (fact.lead, f"{fact.lead} {fact.value}")
    )
    assert told[: len(led)] == led
    tokens = (*made.tokens, *CHAT.encode(fact.question), *CHAT.prompt(), *told)
    scores = engine.logits(tokens, OpHistory()).log_softmax(-1)
    places = range(len(tokens) - len(told) + len(led), len(tokens))
    expected = sum(float(scores[i - 1, tokens[i]]) for i in places)
    assert answer.likely == pytest.approx(expected, abs=1e-3)


def test_forgetting_by_operations_is_trimming_the_text(engine: Engine, made: Recall) -> None:
    """Refresh of all behind, with Repos, is the trimmed text prefilled again."""
    state = Visibility().append(len(made.tokens))
    forgotten = OpHistory(state.forget([made.spans[i] for i in made.results]))
    by_ops = ask(engine, CHAT, made.facts, Prompt(made.tokens, forgotten, 0))
    by_text = ask(engine, CHAT, made.facts, prompt("trim", made))
    for one, other in zip(by_ops.answers, by_text.answers, strict=True):
        assert one.likely == pytest.approx(other.likely, abs=1e-3)


def test_a_policy_decides_before_each_call_and_before_the_questions(made: Recall) -> None:
    results = [made.spans[i] for i in made.results]
    dropped = by_policy(library.spec("rolling_drop", keep=1))(
        made, CHAT, lambda _: Message("user", "")
    )
    assert [type(op) for op in dropped.history] == [Drop] * len(results)
    assert [op.ranges for op in dropped.history if isinstance(op, Drop)] == [(r,) for r in results]
    trimmed = by_policy(library.spec("trim", keep=1, batch=2))
    found = trimmed(made, CHAT, lambda _: Message("user", ""))
    assert set(found.tokens) <= set(made.tokens)
    assert len(made.tokens) - sum(b - a for a, b in results) <= len(found.tokens) < len(made.tokens)


def test_a_measurement_pairs_questions(engine: Engine) -> None:
    chosen = {name: ALL[name] for name in ("full", "drop", "drop+refresh")}
    found = {row["variant"]: row for row in rows(measure(engine, CHAT, chosen, 500, 8))}
    assert found["full"]["questions"] >= 8
    assert found["full"]["gap"]["estimate"] == 0
    assert found["drop"]["gap"]["estimate"] != 0
    gap = found["drop"]["likely"]["estimate"] - found["full"]["likely"]["estimate"]
    assert found["drop"]["gap"]["estimate"] == pytest.approx(gap)
    assert found["drop"]["attended"] < found["full"]["attended"]


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    random_model().save_pretrained(tmp_path)
    tokenizer(CHATML).save_pretrained(tmp_path)
    asked = ["recall", "--model", str(tmp_path), "--length", "400", "--questions", "4"]
    assert run([*asked, "--variant", "drop", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["variant"] for row in report["lengths"]["400"]] == ["full", "drop"]
    assert run([*asked, "--variant", "burn"]) == 2
    assert "unknown variants burn" in capsys.readouterr().err
    assert run([*asked, "--length", "9"]) == 2
