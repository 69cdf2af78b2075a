"""Episodes, cohorts and the evaluator: outcomes, sharing, determinism."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import pytest
from toy import SPAN, PlainEnvironment, ToyEngine, faulty_agent, toy_agent, toy_suite

from akv_rsi.errors import ConfigError, EngineError, TaskError
from akv_rsi.policies import library
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.tasks.bench import Agent, Bench
from akv_rsi.tasks.cohort import run_cohort
from akv_rsi.tasks.cost import PRESETS, cost_of
from akv_rsi.tasks.episode import Episode, TaskRef
from akv_rsi.tasks.evaluator import Evaluator, EvaluatorConfig, deal, undeal
from akv_rsi.types import Repos

CLAUDE = PRESETS["claude"]
FULL = library.spec("full")
ORACLE = PolicySpec("oracle", kind="oracle")
GREEDY = """
from akv_rsi.policies.dsl import Context, drop

def policy(ctx: Context) -> None:
    for seg in ctx.segments:
        if seg.kind == "tool_result" and seg.age >= 1:
            drop(seg)
"""
FAULTY = """
from akv_rsi.policies.dsl import Context, drop

def policy(ctx: Context) -> None:
    if ctx.turn >= 3:
        drop(ctx.segments[0])
"""


def program(source: str, name: str = "p", trusted: bool = True) -> PolicySpec:
    return PolicySpec(name, source=source, trusted=trusted)


def tasks(count: int, suite: str = "toy") -> list[TaskRef]:
    return [TaskRef(suite, seed, "train") for seed in range(count)]


def evaluator(**config: int) -> Evaluator:
    return Evaluator(toy_agent, CLAUDE, EvaluatorConfig(**config), toy_suite)  # type: ignore[arg-type]


def bench() -> tuple[Bench, ToyEngine]:
    engine = ToyEngine()
    return Bench(Agent(engine, engine.chat), toy_suite, CLAUDE), engine


def test_what_is_dropped_and_needed_costs_accuracy_and_the_oracle_none() -> None:
    full, greedy, oracle = evaluator().run([FULL, program(GREEDY), ORACLE], tasks(6))
    assert all(e.success and e.outcome == "done" for e in full)
    assert not any(e.success for e in greedy)
    assert all(e.outcome == "done" for e in greedy)
    assert all(e.success for e in oracle)
    assert sum(e.cost for e in oracle) < sum(e.cost for e in full)


def test_episodes_come_in_task_order_and_name_their_policy() -> None:
    refs = tasks(5)
    for spec, row in zip([FULL, ORACLE], evaluator().run([FULL, ORACLE], refs), strict=True):
        assert [e.task for e in row] == refs
        assert {e.policy for e in row} == {spec.id}


def test_the_oracle_repositions_only_to_stay_inside_the_reliable_span() -> None:
    (row,) = evaluator().run([ORACLE], tasks(12), keep=True)
    for episode in row:
        trajectory = episode.trajectory
        assert trajectory is not None
        ends = [call.prompt for call in trajectory.calls if Repos in map(type, call.ops)]
        assert all(end + 16 > SPAN for end in ends)
    assert any(Repos in map(type, call.ops) for e in row for call in e.trajectory.calls)  # type: ignore[union-attr]


def test_a_policy_error_ends_its_episode_and_nothing_else() -> None:
    faulty, full = evaluator().run([program(FAULTY), FULL], tasks(3))
    for episode in faulty:
        assert episode.outcome == "policy_error"
        assert not episode.success
        assert "pinned" in episode.detail
        assert episode.usage.calls == 3
        assert episode.cost > 0
    assert all(e.success for e in full)


@pytest.mark.parametrize("source", ["import os\n", "def policy(ctx):\n  drop("])
def test_a_policy_that_cannot_be_opened_fails_all_its_episodes(source: str) -> None:
    bad, full = evaluator().run([program(source), FULL], tasks(3))
    assert {e.outcome for e in bad} == {"policy_error"}
    assert {e.usage.calls for e in bad} == {0}
    assert all(e.success for e in full)


@pytest.mark.parametrize("suite", ["reset", "step"])
def test_an_environment_that_raises_is_infrastructure(suite: str) -> None:
    (row,) = evaluator().run([FULL], tasks(4, suite))
    assert [e.outcome for e in row] == ["done", "infrastructure", "done", "infrastructure"]
    assert "RuntimeError" in row[1].detail


@pytest.mark.parametrize("answer", [None, "text", {}])
def test_an_environment_that_breaks_the_protocol_is_infrastructure(
    monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    monkeypatch.setattr(PlainEnvironment, "step", lambda self, action: answer)
    (row,) = evaluator().run([FULL], tasks(2, "plain"))
    assert {e.outcome for e in row} == {"infrastructure"}


def test_the_oracle_without_hindsight_is_infrastructure() -> None:
    oracle, full = evaluator().run([ORACLE, FULL], tasks(2, "plain"))
    assert {e.outcome for e in oracle} == {"infrastructure"}
    assert "needed()" in oracle[0].detail
    assert all(e.success for e in full)


def test_an_endless_environment_meets_the_cap() -> None:
    (row,) = evaluator(max_turns=4).run([FULL], tasks(2, "plain"))
    assert {(e.outcome, e.success, e.usage.calls) for e in row} == {("done", False, 4)}


def test_an_engine_failure_stops_the_run() -> None:
    with pytest.raises(EngineError, match="out of pages"):
        Evaluator(faulty_agent, CLAUDE, suites=toy_suite).run([FULL], tasks(2))


def test_outgrowing_the_model_is_the_policys_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toy.LONGEST", 60)
    (full,) = evaluator().run([FULL], tasks(4))
    assert {e.outcome for e in full} == {"policy_error"}
    assert "ContextLimit" in full[0].detail


def test_equal_calls_of_different_policies_are_generated_once() -> None:
    table, engine = bench()
    alone = run_cohort(table, [FULL], tasks(3)).totals
    calls = sum(map(len, engine.batches))
    twice = run_cohort(table, [FULL, program(GREEDY), FULL], tasks(3))
    assert alone.shared_calls == 0
    assert alone.calls == calls
    assert twice.episodes[0] == twice.episodes[2]
    assert twice.totals.shared_calls >= alone.calls
    assert twice.totals.calls - twice.totals.shared_calls == sum(map(len, engine.batches)) - calls
    assert all(len(set(batch)) == len(batch) for batch in engine.batches)


def test_a_cohort_starts_cold_and_asks_once_a_wave() -> None:
    table, engine = bench()
    episodes = run_cohort(table, [FULL, ORACLE], tasks(4)).episodes
    assert engine.resets == 1
    assert len(engine.batches) == max(e.usage.calls for row in episodes for e in row)


def test_costs_do_not_depend_on_what_else_runs() -> None:
    alone = [row for spec in (FULL, ORACLE) for row in evaluator().run([spec], tasks(5))]
    assert alone == evaluator().run([FULL, ORACLE], tasks(5))
    assert alone[0] == [
        episode for task in tasks(5) for episode in evaluator().run([FULL], [task])[0]
    ]


def test_an_evaluation_repeats_itself() -> None:
    specs = [FULL, ORACLE, *(library.spec(name) for name in ("trim", "summarise", "rolling_drop"))]
    with evaluator() as one, evaluator() as other:
        first = one.run(specs, tasks(7), keep=True)
        assert first == one.run(specs, tasks(7), keep=True)
        assert first == other.run(specs, tasks(7), keep=True)
        assert one.totals == other.totals + other.totals


def test_the_sandbox_decides_as_plain_python_does() -> None:
    plain, boxed = program(GREEDY), program(GREEDY, trusted=False)
    assert plain.id == boxed.id
    first, second = evaluator().run([plain, boxed], tasks(2))
    assert first == second


@pytest.mark.parametrize("name", library.EDITORS)
def test_text_editors_pay_for_what_they_edit(name: str) -> None:
    """Every edited conversation costs what its trajectory says, and re-computes something."""
    (row,) = evaluator().run([library.spec(name)], tasks(8), keep=True)
    edited = summaries = 0
    for episode in row:
        assert episode.trajectory is not None
        assert episode.cost == cost_of(episode.trajectory, CLAUDE)
        calls = [c for c in episode.trajectory.calls if not c.auxiliary]
        edited += sum(b.reused < a.prompt + a.output for a, b in itertools.pairwise(calls))
        summaries += len(episode.trajectory.calls) - len(calls)
    assert edited > 0
    assert summaries == (edited if name == "summarise" else 0)


def test_measurements_come_apart_from_cost() -> None:
    (row,) = evaluator().run([FULL], tasks(2), keep=True)
    for episode in row:
        assert len(episode.measured) == episode.usage.calls
        assert all(m.prefilled == m.prompt and m.ttft > 0 for m in episode.measured)
    (row,) = evaluator().run([FULL], tasks(2))
    assert row[0].measured == ()
    assert row[0].trajectory is None


def test_span_is_a_property_of_the_task() -> None:
    full, greedy = evaluator().run([FULL, program(GREEDY)], tasks(10))
    assert [e.in_span for e in full] == [e.in_span for e in greedy]
    assert len({e.in_span for e in full}) == 2


def test_every_episode_is_reported_once() -> None:
    seen: list[Episode] = []
    with evaluator(shard_tasks=2) as one:
        one.on_episode = seen.append
        rows = one.run([FULL, ORACLE], tasks(5))
    assert sorted(seen, key=_key) == sorted((e for row in rows for e in row), key=_key)


def _key(episode: Episode) -> tuple[str, int]:
    return episode.policy, episode.task.seed


def test_scripts_are_the_oracles_episodes_when_the_agent_is_right() -> None:
    with evaluator() as one:
        scripts = one.scripts(tasks(4))
        (row,) = one.run([ORACLE], tasks(4), keep=True)
    for script, episode in zip(scripts, row, strict=True):
        assert script is not None
        assert episode.trajectory is not None
        assert script.calls == episode.trajectory.calls
        assert script.segments == episode.trajectory.segments
    with evaluator() as one:
        assert one.scripts(tasks(2, "plain")) == [None, None]


def test_an_expert_that_fails_is_refused() -> None:
    with pytest.raises(TaskError), evaluator() as one:
        one.scripts(tasks(2, "step"))


def test_nothing_to_do() -> None:
    assert evaluator().run([], tasks(2)) == []
    assert evaluator().run([FULL], []) == [[]]


@pytest.mark.parametrize("count", range(1, 40))
@pytest.mark.parametrize("size", [1, 4, 16])
def test_dealing_depends_on_numbers_alone_and_loses_nothing(count: int, size: int) -> None:
    hands = deal(range(count), size)
    assert undeal(hands) == list(range(count))
    assert all(1 <= len(hand) <= max(size, 1) for hand in hands)
    assert len(hands) >= min(2, count)


@pytest.mark.parametrize("config", [{"workers": -1}, {"shard_tasks": 0}, {"max_turns": 0}], ids=str)
def test_bad_configurations_are_refused(config: dict[str, int]) -> None:
    make: Callable[..., EvaluatorConfig] = partial(EvaluatorConfig)
    with pytest.raises(ConfigError):
        make(**config)
