"""The culprit is named, and cheaply; what cannot be told is said to be so."""

import json
import sys
from pathlib import Path

import pytest
from planted import plant

sys.path.insert(0, str(Path(__file__).parents[1] / "tasks"))
from toy import toy_agent, toy_suite

from akv_rsi.config import EngineConfig
from akv_rsi.policies import library
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.search.codec import dumps, loads
from akv_rsi.search.critique import criticise, critique
from akv_rsi.search.findings import Recorded, merged
from akv_rsi.search.fork import Fork, Variant, reopened
from akv_rsi.search.tell import sentence
from akv_rsi.search.walk import walk
from akv_rsi.tasks.bench import Bench
from akv_rsi.tasks.cohort import run_cohort
from akv_rsi.tasks.cost import PRESETS
from akv_rsi.tasks.episode import TaskRef
from akv_rsi.tasks.evaluator import Evaluator, EvaluatorConfig
from akv_rsi.tasks.load import load_agent
from akv_rsi.tasks.suites import BUILT_IN, load_suite, task_refs
from akv_rsi.types import Drop, Repos

PRICES = PRESETS["claude"]
GREEDY = """from akv_rsi.policies.dsl import Context, drop, repos


def policy(ctx: Context) -> None:
    for seg in ctx.segments:
        if seg.kind == "tool_result" and seg.age >= 1:
            drop(seg)
    repos()
"""
TOY = [TaskRef("toy", seed, "train") for seed in range(4)]


@pytest.fixture(scope="module")
def bench():
    return Bench(load_agent("reference", EngineConfig(threads=1)), load_suite, PRICES)


def blamed(bench, tasks):
    """How many planted failures there were, and the findings on them with the planted words."""
    found, efforts = [], []
    for planted in filter(None, map(plant, tasks)):
        ((episode,),), _ = run_cohort(bench, [planted.spec], [planted.task], keep=True)
        if episode.success:
            continue
        evidence = criticise(bench, [Recorded(planted.task, episode.trajectory, False)])
        found.append((planted, evidence.findings))
        efforts.append((evidence.effort, bench.agent.engine.stats()))
    return found, efforts


def check_blamed(found, efforts, least):
    assert len(found) >= least
    named = [
        planted.value in finding.culprits[0].text.split() and len(finding.culprits) == 1
        for planted, findings in found
        for finding in findings
        if finding.cause == "dropped"
    ]
    assert sum(named) >= 0.95 * len(found)
    for effort, stats in efforts:  # ours, and the engine's own counts since the cold start
        computed = stats.computed_tokens + stats.refreshed_tokens
        assert (effort.computed, effort.prompt, effort.forks) == (
            computed,
            stats.prompt_tokens,
            stats.requests,
        )
    fresh = sum(effort.prompt for effort, _ in efforts)
    assert sum(effort.computed for effort, _ in efforts) <= 0.25 * fresh


def test_the_culprit_is_named_and_forks_reuse_the_cache(bench):
    short = [task for task in task_refs(BUILT_IN, "train", 15) if task.seed % 2 == 0]
    found, efforts = blamed(bench, [*short, TaskRef("repo", 1, "train")])
    check_blamed(found, efforts, least=6)


@pytest.mark.slow
def test_the_culprit_is_named_on_many_tasks(bench):
    found, efforts = blamed(bench, task_refs(BUILT_IN, "validation", 120))
    check_blamed(found, efforts, least=80)


@pytest.fixture
def evaluator():
    with Evaluator(toy_agent, PRICES, EvaluatorConfig(), toy_suite) as one:
        yield one


def episodes(evaluator, spec, tasks=TOY):
    return evaluator.run([spec], tasks, keep=True)[0]


def greedy():
    return PolicySpec("greedy", source=GREEDY, trusted=True)


def test_what_was_repositioned_away_is_restored_with_a_place(evaluator):
    """The fault is a drop before a repos: restoring needs another repos at the same boundary."""
    failed = episodes(evaluator, greedy())
    assert not any(episode.success for episode in failed)
    evidence = critique(evaluator, failed)
    assert [finding.task for finding in evidence.findings] == TOY
    for finding in evidence.findings:
        (culprit,) = finding.culprits
        assert finding.cause == "dropped"
        assert f"is {finding.right.split()[-1]}" in culprit.text
        assert culprit.traits.kind == "tool_result"
        assert finding.said != finding.right
    assert loads(dumps(evidence)) == evidence


def test_forks_see_what_they_should(evaluator):
    bench = Bench(toy_agent(), toy_suite, PRICES)
    (episode, *_) = episodes(evaluator, greedy())
    (step,) = [s for s in walk(bench, episode.task, episode.trajectory) if s.departs][:1]
    fork, everything = Fork(bench.agent.chat, step), step.hidden()
    asked = fork.request(Variant())
    assert len(asked.tokens) == step.call.prompt
    assert asked.history == step.history.extend(step.call.ops)
    for number, ranges in everything.items():
        ops = reopened(step, Variant(tuple(ranges)))
        state = step.before.apply(ops).visibility
        start, end = step.segments[number].start, step.segments[number].end
        assert state.visible_in(start, end) == ((start, end),)
        kept = set(everything) - {number}
        assert not any(state.visible_in(*span) for i in kept for span in everything[i])
        assert Repos in map(type, ops)
        assert not any(isinstance(op, Drop) and (start, end) in op.ranges for op in ops)


def test_a_success_is_looked_at_without_a_model(evaluator):
    kept = episodes(evaluator, library.spec("full"))
    evidence = critique(evaluator, kept)
    assert evidence.findings == ()
    assert evidence.effort.forks == 0
    assert evidence.waste[0].reads >= evidence.waste[-1].reads > 0
    polls = sum(s.weight for s in evidence.samples if s.traits.tool == "poll" and not s.needed)
    assert polls > 0
    assert not any(s.needed for s in evidence.samples if s.traits.tool == "poll")


def test_what_gives_no_evidence_is_said(evaluator):
    trimmed = critique(
        evaluator, episodes(evaluator, library.spec("truncate", limit=0.5, target=0.3))
    )
    assert trimmed.findings == ()
    assert any("its text was edited" in line for line in trimmed.skipped)
    plain = [TaskRef("plain", seed, "train") for seed in range(2)]
    blind = critique(evaluator, episodes(evaluator, greedy(), plain))
    assert blind.findings == ()
    assert len(blind.skipped) == 2
    assert blind.samples == ()
    assert critique(evaluator, []) == merged([])


def test_the_evidence_does_not_depend_on_the_workers():
    config = EvaluatorConfig(workers=2)
    with (
        Evaluator(toy_agent, PRICES, config, toy_suite) as many,
        Evaluator(toy_agent, PRICES, EvaluatorConfig(), toy_suite) as one,
    ):
        failed = episodes(one, greedy())
        assert critique(many, failed) == critique(one, failed)


def test_evidence_is_plain_json(evaluator):
    from akv_rsi.cli.critique import _plain

    evidence = critique(evaluator, episodes(evaluator, greedy()))
    plain = json.loads(json.dumps(_plain("abc", 4, 4, evidence)))
    assert plain["findings"][0]["culprits"][0]["traits"]["tool"] == "look"
    assert plain["effort"]["forks"] > 0
    assert "for want of tool_result of look" in sentence(evidence.findings[0])
