"""The built-in suites: deterministic, solvable, unforgiving, and honest about what is needed."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from akv_rsi.errors import ConfigError
from akv_rsi.tasks.environment import Environment, Hindsight, Observation, Suite
from akv_rsi.tasks.reference.model import load_reference, scripted_suites
from akv_rsi.tasks.suites import BUILT_IN, TRAINED_FROM, load_suite, task_refs
from akv_rsi.tasks.suites.world import MISTAKES_ALLOWED, ScriptedEnvironment, ScriptedSuite

SUITES = scripted_suites()
SEEDS = (0, 1, 2, 3, 1_000_000, 2_000_001)


def play(suite: ScriptedSuite, seed: int, wrong: int | None = None) -> tuple[list[str], bool]:
    """All texts of the expert's episode; with ``wrong``, that step's last word is another value."""
    env = ScriptedEnvironment(suite.script(seed))
    observation, texts = env.reset(), []
    for index, step in enumerate(env.steps):
        texts.extend(message.text for message in observation.messages)
        action = step.action
        if index == wrong:
            action = " ".join(
                [*action.split()[:-1], "zephyr" if "zephyr" not in action else "zinc"]
            )
        texts.append(action)
        observation = env.step(action)
        if env.steps[index].strict and index == wrong:
            observation = env.step(step.action)
    assert observation.done
    return texts, env.verify()


@pytest.mark.parametrize("suite", SUITES, ids=lambda s: s.name)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_expert_solves_every_task_and_the_same_seed_is_the_same_task(
    suite: ScriptedSuite, seed: int
) -> None:
    texts, solved = play(suite, seed)
    assert solved
    assert play(suite, seed) == (texts, True)


@pytest.mark.parametrize("suite", SUITES, ids=lambda s: s.name)
def test_every_wrong_value_fails_the_task_unless_the_environment_insists(
    suite: ScriptedSuite,
) -> None:
    steps = suite.script(4).steps
    put = [
        i for i, s in enumerate(steps) if s.needs and len(s.action.split()) > 2 and not s.restates
    ]
    assert put
    for index in put:
        assert play(suite, 4, wrong=index)[1] is steps[index].strict


@pytest.mark.parametrize("suite", SUITES, ids=lambda s: s.name)
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_needed_states_the_answer(suite: ScriptedSuite, seed: int) -> None:
    """The value of each answer stands in a message that `needed` named, or in no message at all."""
    env = ScriptedEnvironment(suite.script(seed))
    messages = [m.text for m in env.reset().messages]
    for step in env.steps:
        if step.needs:
            value = step.action.split()[-1]
            assert any(value in messages[i].split() for i in env.needed())
        messages.append(step.action)
        messages.extend(m.text for m in env.step(step.action).messages)
    assert env.needed() == frozenset()


def test_every_life_cycle_occurs_in_every_suite() -> None:
    for suite in SUITES:
        steps = [step for seed in range(60) for step in suite.script(seed).steps]
        replies = [step.reply for step in steps]
        skin = suite.skin
        assert any(r.is_error for r in replies)
        assert any(r.text.startswith("pending") for r in replies)
        assert any(step.restates for step in steps)
        views = [s for s in steps if s.reply.tool == skin.view]
        assert any(a.action == b.action for a, b in pairwise(views))
        assert any(step.action.startswith(f"{skin.put} ") for step in steps)


def test_short_and_long_tasks_lie_inside_and_beyond_the_reliable_span() -> None:
    _, chat = load_reference()
    for suite in SUITES:
        for seed in range(40):
            inside = suite.script(seed).words <= chat.reliable_span
            assert inside is (seed % 2 == 0)


def test_the_agent_knows_every_word() -> None:
    _, chat = load_reference()
    unknown = chat.encode(SUITES[0].environment(0).reset().messages[0].__class__("user", "qqq"))[1]
    for suite in SUITES:
        for message in suite.environment(9).reset().messages:
            assert unknown not in chat.encode(message)
        for text in play(suite, 9)[0]:
            assert chat.decode(chat.encode(type(message)("user", text))[1:]) == text


@pytest.mark.parametrize("suite", SUITES, ids=lambda s: s.name)
def test_an_action_that_makes_no_sense_is_an_error_and_too_many_end_the_task(
    suite: ScriptedSuite,
) -> None:
    env: Environment = suite.environment(0)
    env.reset()
    for attempt in range(MISTAKES_ALLOWED + 1):
        observation = env.step("dance wildly now")
        assert observation.messages[0].is_error
        assert observation.done is (attempt == MISTAKES_ALLOWED)
    assert not env.verify()


def test_splits_are_disjoint_and_away_from_the_training_seeds() -> None:
    seen = {split: task_refs(BUILT_IN, split, 192) for split in ("train", "validation", "test")}
    keys = [(ref.suite, ref.seed) for refs in seen.values() for ref in refs]
    assert len(set(keys)) == len(keys) == 576
    assert max(seed for _, seed in keys) < TRAINED_FROM - 10_000
    for refs in seen.values():
        assert [sum(ref.suite == name for ref in refs) for name in BUILT_IN] == [64, 64, 64]


def test_suites_keep_the_protocol() -> None:
    for name in BUILT_IN:
        suite = load_suite(name)
        assert isinstance(suite, Suite)
        assert isinstance(suite.environment(0), Hindsight)


@pytest.mark.parametrize(
    "name", ["shop", "no.such.module:make", "akv_rsi.tasks.suites:nothing", "builtins:dict"]
)
def test_a_suite_that_is_none_is_one_clear_error(name: str) -> None:
    with pytest.raises(ConfigError, match=r"suite"):
        load_suite(name)


def test_the_example_of_the_docs_is_a_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2] / "docs" / "examples")
    suite = load_suite("kitchen:suite")
    env = suite.environment(3)
    text = env.reset().messages[-1].text
    observation = Observation(())
    seen: dict[str, str] = {}
    while not observation.done:
        action = text.rpartition("next : ")[2]
        if action.startswith("edit"):
            action = f"{action} {seen[action.split()[1]]}"
        observation = env.step(action)
        if not observation.done:
            text = observation.messages[0].text
            key, value, *_ = text.partition(" : ")[2].split() or ["", ""]
            seen.setdefault(key, value)
    assert env.verify()
