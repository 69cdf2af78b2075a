"""Open-loop replay on fixed sequences: cost and fingerprint."""

from __future__ import annotations

import pytest
from toy import SPAN, toy_agent, toy_suite

from akv_rsi.errors import PolicyError, TaskError
from akv_rsi.policies import library
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.tasks.cost import PRESETS, cost_of
from akv_rsi.tasks.episode import Episode, TaskRef
from akv_rsi.tasks.evaluator import Evaluator
from akv_rsi.tasks.replay import Replay, replay_cost
from akv_rsi.types import Trajectory

CLAUDE = PRESETS["claude"]
TASKS = [TaskRef("toy", seed, "train") for seed in range(5)]
ORACLE = PolicySpec("oracle", kind="oracle")


@pytest.fixture(scope="module")
def scripts() -> list[Trajectory]:
    with Evaluator(toy_agent, CLAUDE, suites=toy_suite) as one:
        return [script for script in one.scripts(TASKS) if script is not None]


def run(*specs: PolicySpec) -> list[list[Episode]]:
    with Evaluator(toy_agent, CLAUDE, suites=toy_suite) as one:
        return one.run(specs, TASKS, keep=True)


def replayed(spec: PolicySpec, trajectories: list[Trajectory]) -> list[Replay]:
    return replay_cost(spec, trajectories, CLAUDE, SPAN)


def program(line: str) -> PolicySpec:
    head = "from akv_rsi.policies.dsl import Context, drop, keep, repos\n"
    return PolicySpec(
        "p", source=f"{head}\ndef policy(ctx: Context) -> None:\n    {line}\n", trusted=True
    )


def recorded(rows: list[Episode]) -> list[Trajectory]:
    return [e.trajectory for e in rows if e.trajectory is not None]


@pytest.mark.parametrize(
    "name", ["full", "rolling_drop", "rolling_drop_refresh", "supersede_aware"]
)
def test_a_policy_on_its_own_trajectories_costs_what_they_cost(name: str) -> None:
    (row,) = run(library.spec(name))
    replays = replayed(library.spec(name), recorded(row))
    assert [r.cost for r in replays] == [e.cost for e in row]
    assert [r.usage for r in replays] == [e.usage for e in row]


def test_the_oracles_decisions_are_those_recorded(scripts: list[Trajectory]) -> None:
    assert [r.cost for r in replayed(ORACLE, scripts)] == [cost_of(s, CLAUDE) for s in scripts]


def test_keep_everything_on_the_oracles_actions_is_its_own_episode(
    scripts: list[Trajectory],
) -> None:
    """The toy agent is always right, so its actions under either are the expert's."""
    (row,) = run(library.spec("full"))
    assert [r.cost for r in replayed(library.spec("full"), scripts)] == [e.cost for e in row]


@pytest.mark.parametrize("name", ["trim", "truncate"])
def test_text_editors_are_replayed_without_a_model(name: str, scripts: list[Trajectory]) -> None:
    """Where the agent acts as the script does, the replay costs what the episode did."""
    (row,) = run(library.spec(name))
    replays = replayed(library.spec(name), scripts)
    same = [(r, e) for r, e in zip(replays, row, strict=True) if e.success]
    assert same
    assert all(r.cost == e.cost for r, e in same)
    assert sum(r.cost for r in replays) > sum(e.cost for e in row if e.success)


def test_a_summary_is_charged(scripts: list[Trajectory]) -> None:
    full = replayed(library.spec("full"), scripts)
    summaries = replayed(library.spec("summarise"), scripts)
    more = [b.usage.calls - a.usage.calls for a, b in zip(full, summaries, strict=True)]
    assert max(more) > 0
    assert all(b.cost > a.cost for a, b, m in zip(full, summaries, more, strict=True) if m)


def test_fingerprints_tell_decisions_not_sources(scripts: list[Trajectory]) -> None:
    idle = replayed(program("repos()"), scripts)
    full = replayed(library.spec("full"), scripts)
    assert [r.fingerprint for r in idle] == [r.fingerprint for r in full]
    drop = program("[drop(s) for s in ctx.segments if s.kind == 'tool_result' and s.age >= 1]")
    slow = program("[drop(s) for s in ctx.segments if s.kind == 'tool_result' and s.age > 0]")
    other = program("[drop(s) for s in ctx.segments if s.kind == 'tool_result' and s.age >= 2]")
    prints = [[r.fingerprint for r in replayed(spec, scripts)] for spec in (drop, slow, other)]
    assert prints[0] == prints[1]
    assert all(a != b for a, b in zip(prints[0], prints[2], strict=True))


def test_replays_do_not_depend_on_their_company(scripts: list[Trajectory]) -> None:
    spec = library.spec("rolling_drop")
    together = replayed(spec, scripts)
    assert together == [replayed(spec, [script])[0] for script in scripts]


def test_a_policy_at_fault_raises(scripts: list[Trajectory]) -> None:
    with pytest.raises(PolicyError, match="pinned"):
        replayed(program("drop(ctx.segments[0])"), scripts)


def test_edited_trajectories_are_no_fixed_sequence() -> None:
    (row,) = run(library.spec("truncate"))
    with pytest.raises(TaskError, match="edited"):
        replayed(library.spec("full"), recorded(row))
