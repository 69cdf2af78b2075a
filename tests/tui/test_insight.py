"""What is derived from a run's events: scores, maps, causes, pairs, curves."""

import json
import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from akv_rsi.errors import ConfigError, PolicyError, RunCorrupt, StoreError
from akv_rsi.insight.ablation import ablate
from akv_rsi.insight.cachemap import State, cache_map
from akv_rsi.insight.causes import covers, hindsight, later_needs, rules_behind, rules_for
from akv_rsi.insight.compare import align, diff, divergence, instructive, source_of
from akv_rsi.insight.progress import accounts, arms, curve, line
from akv_rsi.insight.retrace import is_edited, retrace
from akv_rsi.insight.run import Run
from akv_rsi.insight.study import declared, effect
from akv_rsi.insight.tree import described, tree_of
from akv_rsi.policies.tunables import freeze
from akv_rsi.search.store import Store
from akv_rsi.tasks.cost import PRESETS, usages
from akv_rsi.types import Call, Drop, Refresh, Repos, Restore, Segment, Trajectory


def conversations(run):
    """Recorded conversations of the best policy and of keeping everything."""
    for seen in (run.best, run.full, run.oracle):
        for task in run.recorded(seen)["test"][:4]:
            yield seen, task, run.trajectory(seen, task)


def test_scores_are_those_of_the_search_itself(recorded):
    report = recorded.report
    for split in ("train", "validation", "test"):
        row = getattr(report.best, split)
        score = recorded.standing(recorded.best, split).score
        assert score.n == row.n
        assert score.accuracy == row.accuracy
        assert score.cost_ratio == row.cost_ratio
    assert recorded.standing(recorded.full, "test").ratio == 1.0


def test_every_candidate_is_there_with_its_fate(recorded):
    every = [seen for seen in recorded.policies.values() if seen.origin]
    assert len([seen for seen in every if not seen.fate]) == recorded.report.candidates
    assert all(seen.episodes for seen in every if not seen.fate)
    assert not any(seen.episodes for seen in every if seen.fate)


def test_the_ledger_and_the_curve_end_where_the_report_does(recorded):
    for account in accounts(recorded):
        assert account.spent == recorded.report.episodes[account.arm] <= account.limit
        assert account.waiting == 0
    for arm in arms(recorded):
        rounds = [point.round for point in curve(recorded, arm)]
        assert rounds == sorted(rounds)
        assert rounds[-1] == max(s.candidate.born for s in recorded.ran() if arm in s.arms)
    assert all(line(step) for step in recorded.steps)


def test_policies_are_found_by_the_beginning_of_their_id(recorded):
    assert recorded.find(recorded.best.id[:6]) is recorded.best
    with pytest.raises(ConfigError, match="no policies 'zzz'"):
        recorded.find("zzz")


def test_usage_call_by_call_is_the_cost_models(recorded):
    for _, _, trajectory in conversations(recorded):
        turns = list(retrace(trajectory, recorded.prices))
        assert [turn.usage for turn in turns] == list(usages(trajectory, recorded.prices))


def test_a_recorded_policy_decides_again_what_was_recorded(recorded):
    setting, asked = recorded.setting(), 0
    task = instructive(recorded, recorded.best)[-1].task
    shown = cache_map(recorded.trajectory(recorded.best, task), recorded.prices)
    for turn, behind in zip(
        shown.turns, rules_behind(recorded.best.spec, shown, setting), strict=True
    ):
        for op in turn.call.ops:
            for segment in turn.segments:
                rules = rules_for(behind, op, segment)
                assert bool(rules) == covers(op, segment), "who touches it, and nobody else"
                asked += len(rules)
    assert asked
    with pytest.raises(PolicyError, match="does not decide at call"):
        rules_behind(recorded.full.spec, shown, setting)


PRICES = PRESETS["deepseek"]
SEGMENTS = tuple(
    Segment(i, kind, max(0, (i - 1) // 2), 10 * i, 10 * i + 10, text)
    for i, (kind, text) in enumerate(
        [
            ("user", "start"),
            ("tool_call", "look"),
            ("tool_result", "the code is harbour_9"),
            ("tool_call", "wait"),
            ("tool_result", "nothing new"),
            ("tool_call", "enter harbour_9"),
            ("tool_result", "entered"),
        ]
    )
)


def talk(*ops):
    """Four calls over `SEGMENTS`; ``ops[i]`` come before call ``i``."""
    calls, reused = [], 0
    for number in range(4):
        prompt = 10 + 20 * number
        calls.append(Call(prompt, reused, 10, ops[number] if number < len(ops) else ()))
        reused = prompt + 10
    return Trajectory("made/up", SEGMENTS, tuple(calls))


def test_every_state_has_its_cell():
    shown = cache_map(
        talk((), (), (Drop(40, ((20, 30),)),), (Restore(60, ((20, 30),)), Repos(60))), PRICES
    )
    rows = ["".join(cell.state.value for cell in row) for row in shown.cells]
    assert rows == ["█", "▓▓█", "▓▓x▓█", "▓▓↑▓▓▓█"]
    shown = cache_map(
        talk((), (), (Drop(40, ((10, 20),)), Repos(40), Refresh(40, ((20, 30),)))), PRICES
    )
    assert "".join(cell.state.value for cell in shown.cells[2]) == "▓xR▒█"
    assert "".join(cell.state.value for cell in shown.cells[3])[:4] == "▓·▒▒", "a new birth counts"
    assert shown.dropped_at(1) == 2
    assert shown.spell(1) == [(1, 2, State.KEPT), (2, 3, State.DROPPED), (3, 4, State.GONE)]


def test_a_segment_of_which_a_part_is_gone_is_partial():
    shown = cache_map(talk((), (), (Drop(40, ((22, 25),)),)), PRICES)
    assert shown.cells[2][2].visible == 7
    assert shown.cells[2][2].is_partial(SEGMENTS[2])
    assert not shown.cells[1][2].is_partial(SEGMENTS[2])


def test_a_word_that_was_lost_is_told_from_one_that_was_seen():
    kept = later_needs(cache_map(talk(), PRICES), 2, 2)
    assert [(need.turn, need.words, need.lost) for need in kept] == [(2, ("harbour_9",), ())]
    lost = later_needs(cache_map(talk((), (), (Drop(40, ((20, 30),)),)), PRICES), 2, 2)
    assert [need.lost for need in lost] == [("harbour_9",)]
    assert later_needs(cache_map(talk(), PRICES), 4, 2) == []


def test_hindsight_tells_until_when_a_segment_was_needed():
    ours = cache_map(talk(), PRICES)
    oracle = cache_map(talk((), (), (), (Drop(60, ((20, 30),)),)), PRICES)
    assert hindsight(ours, oracle, 2) == 3
    assert hindsight(ours, oracle, 4) == 4, "to the end"
    assert hindsight(ours, None, 2) is None
    other = Trajectory("made/up", (*SEGMENTS[:2], SEGMENTS[4]), talk().calls)
    assert hindsight(cache_map(other, PRICES), oracle, 2) is None


def test_an_edited_text_has_no_map():
    calls = (Call(10, 0, 10), Call(25, 5, 10))
    edited = Trajectory("e", SEGMENTS[:3], calls)
    assert is_edited(edited)
    assert cache_map(edited, PRICES).cells == ()
    with pytest.raises(ValueError, match="was edited"):
        list(retrace(edited, PRICES))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(range(1, 5)), unique=True, max_size=4), st.booleans())
def test_visible_cells_add_up_to_what_is_attended(dropped, repos):
    """Any whole segments dropped before the last call."""
    ranges = tuple((10 * i, 10 * i + 10) for i in sorted(dropped))
    ops = (*((Drop(60, ranges),) if ranges else ()), *((Repos(60),) if repos else ()))
    shown = cache_map(talk((), (), (), ops), PRICES)
    for turn, row in zip(shown.turns, shown.cells, strict=True):
        header = turn.call.prompt - turn.segments[-1].end
        assert sum(cell.visible for cell in row) + header == turn.attended


def test_conversations_are_compared_place_by_place():
    other = Trajectory("o", (*SEGMENTS[:3], SEGMENTS[5]), talk().calls)
    pairs = align(talk(), other)
    assert len(pairs) == 7
    assert divergence(pairs) == 3
    assert divergence(align(talk(), talk())) is None
    assert [side for side, _ in diff("a\nb\n", "a\nc\n")] == ["place", "same", "old", "new"]


def test_instructive_tasks_are_what_they_are_called(recorded):
    found = {told.kind: told.task for told in instructive(recorded, recorded.best)}
    for kind, task in found.items():
        ours = recorded.best.episodes["test"][task].success
        full = recorded.full.episodes["test"][task].success
        assert (ours, full) == {"win": (True, False), "loss": (False, True), "tie": (True, True)}[
            kind
        ]
    assert found


def test_ablation_of_a_rule_changes_what_it_is_for(recorded):
    tasks = recorded.recorded(recorded.full)["test"][:4]
    talks = [recorded.trajectory(recorded.full, task) for task in tasks]
    whole, *less = ablate(recorded.best.spec, recorded.full.spec, talks, recorded.setting())
    assert whole.rule is None
    assert whole.ratio < 1
    assert max(row.ratio for row in less if row.rule.verb == "drop") > whole.ratio
    assert not any(row.error for row in less)


def test_studied_values_are_in_order_and_the_chosen_one_among_them(recorded):
    for seen in recorded.ran():
        for tunable in declared(seen):
            tried = effect(recorded, seen, tunable)
            assert [t.value for t in tried] == sorted(t.value for t in tried)
            assert seen.candidate.values[tunable.name] in [t.value for t in tried]


def test_the_source_shown_is_the_one_that_ran(recorded):
    best = recorded.best
    assert source_of(best) == freeze(best.spec.source, recorded.report.best.tunables)
    assert "no program" in source_of(next(s for s in recorded.ran() if s.spec.kind == "editor"))


def test_a_run_is_read_while_it_grows(copy, tmp_path):
    """The first half of a run's events, then the rest."""
    half = tmp_path / "half"
    half.mkdir()
    (half / "config.json").write_bytes((copy / "config.json").read_bytes())
    run = Run(half)
    assert (run.state, len(run.steps), run.best) == ("stopped", 0, None)
    with Store.read(copy) as whole, Store.open(half) as store:
        events = list(whole.events())
        for number, event in enumerate(events):
            store.append(event.kind, event.key, event.body, event.attachment, event.seconds)
            if number == len(events) // 2:
                assert run.refresh() == number + 1
                assert run.best is not None
        assert run.refresh() == len(events) - len(events) // 2 - 1
    assert run.state == "finished"
    assert run.refresh() == 0


def test_what_is_no_run_is_said_clearly(copy, tmp_path):
    with pytest.raises(StoreError, match="holds no run"):
        Run(tmp_path)
    database = sqlite3.connect(copy / "run.sqlite")
    database.execute("UPDATE events SET body = replace(body, '0', '1') WHERE seq = 3")
    database.commit()
    database.close()
    with pytest.raises(RunCorrupt, match="event 3 is damaged"):
        Run(copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "format": 99}))
    with pytest.raises(StoreError, match="another version of akv-rsi"):
        Run(copy)


def test_the_tree_shares_what_is_equal_and_no_more():
    dropped = talk((), (), (Drop(40, ((10, 20),)),))
    tree = tree_of([("full", talk()), ("same", talk()), ("other", dropped)])
    assert [(edge.slots, edge.names) for edge in tree] == [(40, ["full", "same", "other"])]
    plain, ops = tree[0].children
    assert (plain.slots, plain.names) == (30, ["full", "same"])
    assert ops.items == [((Drop(40, ((10, 20),)),), 0)]
    assert [child.slots for child in ops.children] == [30]
    assert described(ops.items[0].ops[0]) == "drop 10 tokens"
