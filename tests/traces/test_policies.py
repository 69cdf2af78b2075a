"""Every policy on recorded contexts: exactly as `tasks.replay`, and edits by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from make import conversation, document, only, turn

from akv_rsi.errors import PolicyError
from akv_rsi.policies import library
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.tasks.cost import PRESETS
from akv_rsi.tasks.replay import replay_cost
from akv_rsi.tasks.traces.calibrate import calibrate
from akv_rsi.tasks.traces.model import Modelled, model
from akv_rsi.tasks.traces.needs import needs_of, unmet
from akv_rsi.tasks.traces.policy_costs import (
    affordable,
    bill_context,
    calls_to_break_even,
    policy_costs,
)
from akv_rsi.tasks.traces.provider import Tariff
from akv_rsi.tasks.traces.replays import Edited, Replayed, Replayer, Setting
from akv_rsi.types import Call, Segment, Trajectory

CLAUDE = Tariff(PRESETS["claude"])
SPAN = 3000
SETTING = Setting(CLAUDE.prices, SPAN, 40)


def context(folder: Path, *results: str) -> Modelled:
    path = document(folder / "c.json", {"messages": conversation(results)})
    trace = only(path)
    (one,) = model(trace, calibrate(trace))
    return one


def long_context(folder: Path) -> Modelled:
    return context(folder, *(f"file src/part_{k}.py holds {k * 37}. " * 20 for k in range(24)))


def replayed(one: Modelled, *specs: PolicySpec) -> list[Replayed]:
    with Replayer(specs, SETTING) as replayer:
        found = replayer.run(one)
    assert all(isinstance(run, Replayed) for run in found), found
    return [run for run in found if isinstance(run, Replayed)]


@pytest.mark.parametrize("name", [n for n in library.names() if n != "summarise"])
def test_decisions_and_usage_are_those_of_the_suites_replay(name: str, tmp_path: Path) -> None:
    one, spec = long_context(tmp_path), library.spec(name)
    (run,) = replayed(one, spec)
    (theirs,) = replay_cost(spec, [one.trajectory], CLAUDE.prices, SPAN)
    assert bill_context(one, run.calls, CLAUDE).usage == theirs.usage


def test_keeping_everything_is_the_recorded_trajectory(tmp_path: Path) -> None:
    one = long_context(tmp_path)
    (run,) = replayed(one, library.spec("full"))
    assert run.calls == one.trajectory.calls


def test_a_summary_is_asked_for_and_paid(tmp_path: Path) -> None:
    one = long_context(tmp_path)
    (run,) = replayed(one, library.spec("summarise"))
    asides = [call for call in run.calls if call.auxiliary]
    assert len(asides) == len(run.edits) > 0
    assert asides[0].prompt == asides[0].reused + 50
    assert asides[0].output == 40
    first = run.edits[0]
    assert first.summary == (asides[0].reused, 40)
    assert first.removed > 0


def by_hand(answer: int = 10) -> Modelled:
    """Four calls; results of 100 tokens after each; answers of 10 tokens, unless told otherwise."""
    segments = [Segment(0, "system", 0, 0, 50, "", pinned=True)]
    calls: list[Call] = []
    end = 50
    for number in range(4):
        calls.append(Call(end, calls[-1].prompt + answer if calls else 0, answer))
        text = f"open src/f{number - 1}.py" if number else "open"
        segments.append(Segment(len(segments), "tool_call", number, end, end + answer, text))
        end += answer
        body = f"see src/f{number}.py"
        segments.append(
            Segment(len(segments), "tool_result", number, end, end + 100, body, "open", str(number))
        )
        end += 100
    trajectory = Trajectory("hand", tuple(segments), tuple(calls))
    return Modelled(trajectory, "start", (None,) * 4, (0,) * 4)


def test_trim_by_hand() -> None:
    """Before call 3, results 0 and 1 are old enough: 200 tokens go, what follows them is redone.

    Text then: 50 + 10 + 100 + 10 + 100 + 10 + 100. The first removed token is 60; of the 270
    computed ones 60 stay; behind them 10 + 10 are prefilled again, and the new 100.
    """
    (run,) = replayed(by_hand(), library.spec("trim", keep=1, batch=2))
    assert run.edits == (Edited(3, removed=200, rewritten=20, answer=10),)
    last = run.calls[-1]
    assert (last.prompt, last.reused) == (180, 60)
    usage = bill_context(by_hand(), run.calls, CLAUDE).usages[-1]
    assert (usage.cached, usage.uncached) == (60, 120)


def test_calls_to_break_even_by_hand() -> None:
    """1,000 tokens redone at 1.25 - 0.1 each, 500 fewer read at 0.1: 23 calls."""
    assert calls_to_break_even(Edited(3, 500, 1000), CLAUDE) == pytest.approx(23)
    assert calls_to_break_even(Edited(3, 500, 1000, answer=200), CLAUDE) == pytest.approx(18.4)
    with_summary = Edited(3, 500, 0, summary=(2000, 100))
    price = 2000 * 0.1 + 50 * 1.0 + 100 * 5.0
    assert calls_to_break_even(with_summary, CLAUDE) == pytest.approx(price / 50)
    assert calls_to_break_even(Edited(3, 0, 10), CLAUDE) == math.inf


def test_a_policy_that_cannot_break_even_is_flagged() -> None:
    specs = {
        "full": library.spec("full"),
        "rolling_drop:keep=1": library.spec("rolling_drop", keep=1),
        "trim:keep=1,batch=2": library.spec("trim", keep=1, batch=2),
    }
    with Replayer(list(specs.values()), SETTING) as replayer:
        full, drop, trim = policy_costs([by_hand(answer=100)], specs, replayer, CLAUDE)
    assert (full.on, drop.on, trim.on) == ("any", "engine", "text")
    assert (full.ratio, full.breaks_even) == (1.0, True)
    assert drop.ratio is not None
    assert drop.ratio < 1
    assert (drop.breaks_even, trim.breaks_even) == (True, False)
    assert (trim.edits, trim.paid) == (1, 0)
    assert trim.needed == pytest.approx(100 * 1.15 / 20)


def test_calls_that_name_what_is_gone_are_blind() -> None:
    """Call k opens what result k - 1 named; dropping results at once takes that away."""
    one = by_hand()
    assert [len(names) for names in needs_of(one)] == [0, 1, 1, 1]
    kept, dropped, trimmed = replayed(
        one,
        library.spec("rolling_drop", keep=1),
        program("[drop(s) for s in ctx.segments if s.kind == 'tool_result' and s.age == 1]"),
        library.spec("trim", keep=1, batch=2),
    )
    needs = needs_of(one)
    assert [run.blind(needs) for run in (kept, dropped, trimmed)] == [0, 0, 0]
    late = shifted(one)
    kept, dropped = replayed(late, library.spec("full"), library.spec("rolling_drop", keep=1))
    assert [run.blind(needs_of(late)) for run in (kept, dropped)] == [0, 1]


def shifted(one: Modelled) -> Modelled:
    """The same, but the last call opens what the first result named."""
    segments = list(one.trajectory.segments)
    at = next(i for i, s in enumerate(segments) if s.kind == "tool_call" and s.turn == 3)
    old = segments[at]
    segments[at] = Segment(old.id, old.kind, old.turn, old.start, old.end, "open src/f0.py x7.z")
    trajectory = Trajectory("late", tuple(segments), one.trajectory.calls)
    # The second call named it too, and a call is a holder itself: take that mention out.
    second = next(i for i, s in enumerate(segments) if s.kind == "tool_call" and s.turn == 1)
    was = segments[second]
    segments[second] = Segment(was.id, was.kind, was.turn, was.start, was.end, "open")
    return Modelled(
        Trajectory(trajectory.id, tuple(segments), trajectory.calls), "start", one.times, one.extra
    )


def program(line: str) -> PolicySpec:
    head = "from akv_rsi.policies.dsl import Context, drop\n"
    source = f"{head}\ndef policy(ctx: Context) -> None:\n    {line}\n"
    return PolicySpec("p", source=source, trusted=True)


def test_unmet_needs_every_holder_gone() -> None:
    holders = (frozenset({1, 4}), frozenset({2}))
    assert not unmet(holders, frozenset({1, 3}))
    assert unmet(holders, frozenset({1, 4}))
    assert not unmet((), frozenset({1}))


def test_a_policy_at_fault_is_an_outcome(tmp_path: Path) -> None:
    with Replayer([program("drop(ctx.segments[0])")], SETTING) as replayer:
        (failed,) = replayer.run(by_hand())
    assert isinstance(failed, PolicyError)
    spec = {"p": program("drop(ctx.segments[0])")}
    with Replayer(list(spec.values()), SETTING) as replayer:
        (row,) = policy_costs([by_hand()], spec, replayer, CLAUDE)
    assert "pinned" in row.failed
    assert row.ratio is None


def test_work_is_bounded_and_a_context_is_cut_after_a_call() -> None:
    """Calls look at 1, 3, 5 and 7 segments."""
    one = by_hand()
    assert affordable([one, one], 1000) == [one, one]
    (cut,) = affordable([one], 9)
    assert len(cut.trajectory.calls) == len(cut.times) == 3
    assert cut.trajectory.segments[-1].end == cut.trajectory.calls[-1].prompt + 10
    assert affordable([one], 0) == []
    assert [len(c.times) for c in affordable([one, one], 17)] == [4, 1]


def test_results_that_stand_first_do_not_stop_a_policy(tmp_path: Path) -> None:
    messages = [
        {"role": "tool", "content": "left over " * 50},
        *conversation(["x " * 200] * 20)[2:],
    ]
    trace = only(document(tmp_path / "t.json", {"messages": messages}))
    (one,) = model(trace, calibrate(trace))
    assert not one.trajectory.segments[0].pinned
    assert replayed(one, library.spec("rolling_drop", keep=2))


def test_turns_of_parallel_calls(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "task"}, *turn(0, "a"), *turn(1, "b")]
    trace = only(document(tmp_path / "p.json", {"messages": messages}))
    (one,) = model(trace, calibrate(trace))
    assert [s.turn for s in one.trajectory.segments] == [0, 0, 0, 0, 1, 1, 1]
