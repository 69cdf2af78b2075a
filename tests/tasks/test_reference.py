"""The reference agent: its lessons are what the engine does, and its weights keep their promise."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch

from akv_rsi.config import EngineConfig
from akv_rsi.engine.engine import Engine
from akv_rsi.engine.model import load_model
from akv_rsi.errors import ModelLoadError
from akv_rsi.tasks.agent import WordFormat
from akv_rsi.tasks.environment import Message
from akv_rsi.tasks.reference import train
from akv_rsi.tasks.reference.lessons import Plan, Style, write_lesson, write_recap
from akv_rsi.tasks.reference.model import (
    MODEL_DIR,
    TRAINED_SPAN,
    load_reference,
    reference_vocabulary,
    scripted_suites,
    tokenizer_file,
)
from akv_rsi.tasks.reference.units import units_of
from akv_rsi.tasks.suites.world import ScriptedEnvironment
from akv_rsi.types import Drop, Repos

STYLES: tuple[Style, ...] = ("keep", "hindsight", "rolling", "tools", "scattered")


def lesson(style: Style, seed: int, **plan: float) -> object:
    suite = scripted_suites()[seed % 3]
    settings = Plan(style, TRAINED_SPAN, **plan)  # type: ignore[arg-type]
    chat = WordFormat(reference_vocabulary(), TRAINED_SPAN)
    env = ScriptedEnvironment(suite.script(seed))
    return write_lesson(env, chat, settings, random.Random(seed))


@pytest.mark.parametrize("style", STYLES)
def test_positions_stay_inside_the_span_and_nobody_sees_the_dropped(style: Style) -> None:
    for seed in range(8):
        made = lesson(style, seed, max_repos=4, refresh=0.7, early_repos=0.2)
        units = units_of(len(made.tokens), made.history)
        own = units.positions[units.phase, np.arange(len(units.phase))]
        assert own.max() < TRAINED_SPAN
        for drop in (op for op in made.history if isinstance(op, Drop)):
            gone = np.concatenate([np.arange(a, b) for a, b in drop.ranges])
            rows = np.isin(units.logical, gone)
            assert (units.gone[rows & (units.born < drop.boundary)] <= drop.boundary).all()


def test_some_lessons_are_repositioned_and_some_notes_refreshed() -> None:
    made = [lesson("hindsight", seed, max_repos=4, refresh=1.0) for seed in range(1, 40, 2)]
    assert any(isinstance(op, Repos) for item in made for op in item.history)
    assert any(len(units_of(len(i.tokens), i.history).logical) > len(i.tokens) for i in made)


def test_a_value_that_is_gone_is_no_target() -> None:
    made = [lesson("rolling", seed) for seed in range(30)]
    kept = [lesson("keep", seed) for seed in range(30)]
    assert sum(sum(m.targets) for m in made) < sum(sum(m.targets) for m in kept)


def test_training_rows_are_what_the_engine_computes() -> None:
    """One training pass over units gives the logits that the engine gives for the same history."""
    torch.set_num_threads(1)
    config = EngineConfig(threads=1, self_test=False)
    engine = Engine(load_model(MODEL_DIR, config), config)
    made = next(
        m
        for m in (
            lesson("hindsight", s, max_repos=3, refresh=1.0, early_repos=0.5) for s in range(40)
        )
        if m.repositioned >= 2 and len(units_of(len(m.tokens), m.history).logical) > len(m.tokens)
    )
    train.AttentionInterface.register("akv_rows", train._attend)
    model = train.LlamaForCausalLM.from_pretrained(MODEL_DIR).float()
    model.set_attn_implementation("akv_rows")
    with torch.no_grad():
        logits, wanted = train.predict(model, train.collate([made]))
    before = [i - 1 for i, target in enumerate(made.targets) if target]
    ours = engine.logits(made.tokens, made.history)[before]
    assert wanted.tolist() == [
        t for t, target in zip(made.tokens, made.targets, strict=True) if target
    ]
    assert (ours - logits).abs().max() < 1e-3


def test_a_recap_restates_every_fact_shown() -> None:
    chat = WordFormat(reference_vocabulary(), TRAINED_SPAN)
    env = ScriptedEnvironment(scripted_suites()[0].script(2))
    made = write_recap(env, chat, 6)
    answer = chat.decode([t for t, target in zip(made.tokens, made.targets, strict=True) if target])
    values = [
        env.script.facts[f][1] for s in env.steps[:6] for f in s.shows if f in env.script.facts
    ]
    assert values
    assert [pair.split()[-1] for pair in answer.split(" , ")] == values


def test_the_curriculum_is_a_function_of_seed_and_step() -> None:
    settings = train.Settings(seed=3)
    kinds = [train.kind_at(step, settings) for step in range(0, settings.steps, 10)]
    assert kinds == [train.kind_at(step, settings) for step in range(0, settings.steps, 10)]
    assert {"short+repos", "long+repos", "recap"}.isdisjoint(kinds[:100])
    assert set(kinds) == set(train.WIDTH_OF)


def test_the_package_ships_the_vocabulary_the_suites_speak() -> None:
    words = reference_vocabulary()
    assert json.loads((MODEL_DIR / "tokenizer.json").read_text()) == tokenizer_file(words)
    size = sum(path.stat().st_size for path in MODEL_DIR.iterdir())
    assert size <= 12_000_000


def test_transformers_reads_the_tokenizer_as_we_do() -> None:
    from transformers import AutoTokenizer

    _, chat = load_reference()
    theirs = AutoTokenizer.from_pretrained(MODEL_DIR)
    text = "repair the service in this repository . next : checkout"
    assert theirs.encode(text) == chat.encode(Message("user", text))[1:-1]


def test_a_damaged_tokenizer_is_one_clear_error(tmp_path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"model": {}}')
    with pytest.raises(ModelLoadError, match=r"word-level tokenizer"):
        WordFormat.load(tmp_path, 10)
