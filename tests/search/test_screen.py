"""What is said of a candidate before it costs an episode."""

from random import Random

import pytest
from synthetic import SyntheticEvaluator, full

from akv_rsi.policies.spec import PolicySpec
from akv_rsi.policies.tunables import tunables_of
from akv_rsi.search.archive import Archive
from akv_rsi.search.candidate import Candidate
from akv_rsi.search.propose import Brief, GrammarProposer
from akv_rsi.search.screen import DUPLICATE, POOR, TOO_DEAR, Interest, Screen
from akv_rsi.search.slack import relaxed
from akv_rsi.tasks.replay import Replay
from akv_rsi.tasks.suites import task_refs
from akv_rsi.types import Usage

RULES = """from akv_rsi.policies.dsl import Context, drop, tunable

AGE = tunable("age", 1, 16, default=4)
AGE_2 = tunable("age_2", 1, 16, default=2)


def policy(ctx: Context) -> None:
    for seg in ctx.segments:
        if not seg.dropped and seg.tool == "poll" and seg.age >= AGE:
            drop(seg)
        if not seg.dropped and seg.tool == "nothing" and seg.age >= AGE_2:
            drop(seg)
        if not seg.dropped and seg.tool == "poll" and seg.age >= AGE and seg.tokens > 1:
            drop(seg)
"""


class Told:
    """Replays that cost and lose what a test says, recording by recording."""

    def __init__(self, costs, lost):
        self.costs, self.lost, self.asked = costs, lost, 0

    def replay_cost(self, spec, recordings):
        if spec.name == "full":
            return [Replay(1.0, Usage(), "idle") for _ in recordings]
        self.asked += len(recordings)
        return [
            Replay(self.costs, Usage(), f"acts {one}", safety=0.4 ** self.lost.get(one, 0))
            for one in recordings
        ]


def screen_of(told):
    first, more = [f"a{i}" for i in range(6)], [f"b{i}" for i in range(4)]
    return Screen(told, first, more, full(), budget=0.8)


DRAFT = Candidate(PolicySpec("grammar", source=RULES, trusted=True), "new")


def test_what_is_safe_on_the_first_recordings_must_be_safe_on_more():
    told = Told(0.7, {"b0": 1, "b1": 1})
    screened = screen_of(told).check(DRAFT)
    assert told.asked == 10
    assert screened.safety == pytest.approx(1 - 2 * 0.6 / 10)


def test_what_loses_something_at_once_is_not_looked_at_further():
    told = Told(0.7, {"a0": 2})
    assert screen_of(told).check(DRAFT).safety == pytest.approx(1 - 0.84 / 6)
    assert told.asked == 6


@pytest.mark.parametrize(("combines", "asked"), [(True, 10), (False, 6)])
def test_who_cannot_combine_the_safe_asks_no_more_of_the_dear(combines, asked):
    told = Told(0.95, {})
    screened = screen_of(told).check(DRAFT, Interest(combines=combines))
    assert (screened.fate, told.asked) == (TOO_DEAR, asked)


def test_the_hopeless_cost_a_third_of_the_recordings():
    told = Told(0.95, {"a0": 1})
    assert screen_of(told).check(DRAFT, Interest(floor=0.9)).fate == POOR
    assert told.asked == 2


def test_rules_that_change_nothing_are_pruned_and_the_decisions_stay():
    evaluator = SyntheticEvaluator()
    recordings = evaluator.scripts(task_refs(("repo", "web"), "train", 6))
    screen = Screen(evaluator, recordings, (), full(), 0.8)
    candidate = DRAFT.with_values({"age": 3, "age_2": 5})
    pruned = screen.prune(candidate)
    assert pruned.spec.source.count("drop(seg)") == 1
    assert [t.name for t in tunables_of(pruned.spec.source)] == ["age"]
    assert pruned.values == {"age": 3}
    assert screen.check(pruned).fingerprint == screen.check(candidate).fingerprint
    assert screen.prune(pruned) is None


def test_rules_that_are_handed_on_keep_their_numbers():
    donor = DRAFT.with_values({"age": 9})
    other = Candidate(PolicySpec("grammar", source=RULES.replace("poll", "view")), "new")
    brief = Brief(Archive(0.8, 6), [], safe=[other, donor], made=0, rng=Random(0))
    children = GrammarProposer(None, {"join": 1}).propose(brief, 8)
    assert children
    for child in children:
        values = {t.name: t.default for t in tunables_of(child.spec.source)} | child.values
        assert 9 in values.values()


class Ages:
    """Replays whose cost grows with the ages after which things are dropped, 1% a turn.

    With ``cursed`` as the second age something is lost.
    """

    def __init__(self, cursed=-1):
        self.cursed = cursed

    def replay_cost(self, spec, recordings):
        if spec.name == "full":
            return [Replay(1.0, Usage(), "idle") for _ in recordings]
        age, age_2 = (dict(spec.tunables)[name] for name in ("age", "age_2"))
        safety = 0.5 if age_2 == self.cursed else 1.0
        cost, acts = 0.5 + (age + age_2) / 100, f"{age} {age_2}"
        return [Replay(cost, Usage(), acts, safety=safety) for _ in recordings]


def numbers(found):
    return found.candidate.values["age"], found.candidate.values["age_2"]


def test_what_is_saved_beyond_the_budget_is_given_back_the_youngest_first():
    young = DRAFT.with_values({"age": 4, "age_2": 2})
    found = relaxed(screen_of(Ages()), young, 0.65)
    assert (found.candidate.operator, found.candidate.parents) == ("relax", (young.id,))
    assert numbers(found) == (4, 9), "16 is beyond the target, half of the way to it is not"
    assert found.ratio <= 0.65
    assert numbers(relaxed(screen_of(Ages()), young, 0.9)) == (16, 16)


def test_no_number_is_moved_to_where_more_is_lost():
    young = DRAFT.with_values({"age": 4, "age_2": 2})
    assert numbers(relaxed(screen_of(Ages(cursed=16)), young, 0.9)) == (16, 9)


def test_a_policy_without_slack_stays_what_it_is():
    tight = DRAFT.with_values({"age": 4, "age_2": 2})
    found = relaxed(screen_of(Ages()), tight, 0.5)
    assert (found.fate, found.candidate.id) == (DUPLICATE, tight.id)
