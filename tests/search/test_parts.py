"""Ledger, archive, gate, race, tuner: their invariants, by number."""

import math
import random

import pytest

from akv_rsi.errors import ConfigError, LedgerError, TaskError
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.policies.tunables import Tunable
from akv_rsi.search.accept import PairedGate, check_gate
from akv_rsi.search.archive import Archive, Entry
from akv_rsi.search.candidate import Candidate, Score, flaw, score
from akv_rsi.search.config import SearchConfig
from akv_rsi.search.ledger import Ledger, Spend
from akv_rsi.search.race import Race
from akv_rsi.search.tune import Trial, suggest
from akv_rsi.tasks.cost import PRESETS
from akv_rsi.tasks.episode import Episode, TaskRef
from akv_rsi.tasks.stats import Interval
from akv_rsi.types import Usage

PRICES = PRESETS["claude"]


def episodes(successes, costs, outcome="done"):
    return [
        Episode(
            TaskRef("repo", i, "train"), "p", bool(s), outcome, float(c), Usage(1, 9, 9, 9), True
        )
        for i, (s, c) in enumerate(zip(successes, costs, strict=True))
    ]


def candidate(name, operator="new"):
    return Candidate(PolicySpec(name, source=f"# {name}"), operator)


def entry(name, accuracy, ratio, n=24, verbs=("drop",)):
    value = Score(n, Interval(accuracy, 0, 1), Interval(ratio, ratio - 0.02, ratio + 0.02), 0.3)
    return Entry(candidate(name), value, verbs)


class TestLedger:
    def test_l1_and_l3_hold_after_random_steps(self):
        rng = random.Random(0)
        ledger, open_tickets, spent = Ledger(Spend(100, math.inf, math.inf)), {}, 0.0
        for _ in range(500):
            amount = Spend(episodes=rng.randint(1, 30))
            if rng.random() < 0.5:
                before = ledger.spent.episodes + ledger.reserved.episodes
                assert ledger.can_reserve(amount) == (before + amount.episodes <= 100)
                if ledger.can_reserve(amount):
                    open_tickets[ledger.reserve(amount)] = amount
            elif open_tickets:
                ticket, amount = open_tickets.popitem()
                ledger.settle(ticket, Spend(amount.episodes, 7, 0.5))
                spent += amount.episodes
            assert ledger.spent.episodes + ledger.reserved.episodes <= 100
            assert ledger.spent.episodes == spent

    def test_l2_a_ticket_is_settled_once(self):
        ledger = Ledger()
        ticket = ledger.reserve(Spend(1))
        ledger.settle(ticket, Spend(1))
        with pytest.raises(LedgerError, match="not open"):
            ledger.settle(ticket, Spend(1))

    def test_nothing_is_reserved_past_the_limit(self):
        ledger = Ledger(Spend(5, math.inf, 1.0))
        with pytest.raises(LedgerError, match="does not fit"):
            ledger.reserve(Spend(6))
        assert not ledger.can_reserve(Spend(1, 0, 2.0))
        assert ledger.reserved == Spend()


class TestArchive:
    def test_a1_a2_a3_hold_after_random_steps(self):
        rng = random.Random(1)
        archive = Archive(0.8, 12)
        for _ in range(300):
            name = f"c{rng.randint(0, 60)}"
            if rng.random() < 0.1:
                archive.discard(candidate(name).id)
            else:
                verbs = rng.choice((("drop",), ("drop", "repos")))
                ratio, n = rng.uniform(0.4, 1.1), rng.choice((6, 12, 24))
                archive.add(entry(name, rng.random(), ratio, n, verbs))
            archive.check()
        assert len(archive.niches) > 5

    def test_a_niche_is_kept_by_its_best(self):
        archive = Archive(0.8, 1)
        assert archive.add(entry("a", 0.9, 0.75))
        assert not archive.add(entry("b", 0.8, 0.74))
        assert archive.add(entry("c", 0.1, 0.75, verbs=("repos",)))
        owners = {e.candidate.spec.name for e in archive.niches.values()}
        assert owners == {"a", "c"}

    def test_best_is_accurate_within_the_budget_or_near_it(self):
        archive = Archive(0.8, 1)
        for name, accuracy, ratio in (("dear", 1.0, 0.9), ("good", 0.9, 0.79), ("poor", 0.5, 0.3)):
            archive.add(entry(name, accuracy, ratio))
        assert [e.candidate.spec.name for e in archive.best(2)] == ["good", "dear"]
        assert [e.candidate.spec.name for e in archive.front] == ["dear", "good", "poor"]

    def test_breeding_uses_all_niches(self):
        """PITFALLS 34: all programs from one island."""
        archive = Archive(0.8, 1)
        for i in range(20):
            archive.add(
                entry(f"c{i}", i / 20, 0.3 + i / 40, verbs=("drop",) if i % 2 else ("repos",))
            )
        bred = {e.candidate.id for e in archive.parents(400, random.Random(0))}
        assert bred >= {e.candidate.id for e in archive.niches.values()}
        assert Archive(0.8, 1).parents(3, random.Random(0)) == []


class TestGate:
    def test_a_policy_against_itself_is_undecided(self):
        """PITFALLS 31: a gate that rejected a byte-identical seed."""
        for wins in ([True] * 40, [False] * 40, [True, False] * 20):
            same = episodes(wins, range(1, 41))
            assert check_gate(PairedGate(), same, same).verdict == "undecided"

    def test_noise_is_rarely_taken_for_a_difference(self):
        rng = random.Random(2)
        decided = 0
        for _ in range(80):
            a, b = ([rng.random() < 0.7 for _ in range(60)] for _ in range(2))
            costs = [[rng.uniform(5, 9) for _ in range(60)] for _ in range(2)]
            verdict = PairedGate().judge(episodes(a, costs[0]), episodes(b, costs[1])).verdict
            decided += verdict != "undecided"
        assert decided <= 8  # 5% by accuracy, and as much again by cost

    def test_one_lucky_task_wins_nothing(self):
        """PITFALLS 31: one lucky run wins."""
        base = [True] * 20 + [False] * 20
        lucky = [True] * 21 + [False] * 19
        assert PairedGate().judge(episodes(lucky, [5] * 40), episodes(base, [5] * 40)).verdict == (
            "undecided"
        )

    def test_better_is_more_accurate_or_as_accurate_and_cheaper(self):
        base = episodes([True] * 20 + [False] * 20, [5] * 40)
        assert PairedGate().judge(episodes([True] * 40, [6] * 40), base).verdict == "better"
        assert PairedGate().judge(base, episodes([True] * 40, [6] * 40)).verdict == "worse"
        cheap = episodes([True] * 20 + [False] * 20, [4] * 40)
        assert PairedGate().judge(cheap, base).verdict == "better"
        assert PairedGate().judge(base, cheap).verdict == "worse"
        worse_but_cheap = episodes([True] * 17 + [False] * 23, [4] * 40)
        assert PairedGate().judge(worse_but_cheap, base).verdict == "undecided"

    def test_an_evaluation_that_does_not_repeat_stops_the_run(self):
        with pytest.raises(TaskError, match="A/A check failed"):
            check_gate(
                PairedGate(), episodes([True] * 30, [5] * 30), episodes([False] * 30, [5] * 30)
            )


class TestRace:
    def race(self, n=12, rungs=(3, 6, 12), budget=0.8):
        full = episodes([True] * n, [10] * n)
        return Race(rungs, 2, budget, full, PRICES, PairedGate())

    def run(self, race, heat, share, cost=7.0, outcome="done"):
        count = heat.episodes
        wins = [i < share * count for i in range(count)]
        return race.finish(heat, episodes(wins, [cost] * count, outcome))

    def test_r1_a_timeout_never_becomes_fitness(self):
        """PITFALLS 28: a timed-out program with positive fitness."""
        for outcome in ("policy_error", "infrastructure"):
            race = self.race()
            heat = race.enter(candidate("slow"))
            runner = self.run(race, heat, 1.0, outcome=outcome)
            assert runner.flawed
            assert runner.stopped.startswith(outcome)
            assert not runner.scores
            assert race.promotions() == []
            assert race.finalists(3) == []

    def test_a_flaw_on_a_later_rung_ends_it_too(self):
        race = self.race()
        self.run(race, race.enter(candidate("a")), 1.0)
        (heat,) = race.promotions()
        assert self.run(race, heat, 1.0, outcome="policy_error").flawed
        assert race.promotions() == []
        assert race.finalists(3) == []
        assert flaw(episodes([1], [1])) == ""

    def test_r2_only_the_best_share_goes_on(self):
        race = self.race()
        for i in range(8):
            self.run(race, race.enter(candidate(f"c{i}")), i / 7)
        heats = race.promotions()
        assert len(heats) == 4
        assert race.promotions() == heats, "asking changes nothing"
        assert {heat.candidate.spec.name for heat in heats} == {"c7", "c6", "c5", "c4"}
        for heat in heats:
            self.run(race, heat, 1.0)
        again = race.promotions()
        assert {(heat.start, heat.end) for heat in again} == {(6, 12)}
        assert len(again) == 2

    def test_r3_the_incumbent_is_within_the_budget_and_beaten_only_beyond_noise(self):
        race = self.race(n=40, rungs=(40,))
        self.run(race, race.enter(candidate("dear")), 1.0, cost=8.01)
        assert race.incumbent is None
        self.run(race, race.enter(candidate("first")), 0.5)
        assert race.incumbent.candidate.spec.name == "first"
        self.run(race, race.enter(candidate("lucky")), 0.55)
        assert race.incumbent.candidate.spec.name == "first"
        self.run(race, race.enter(candidate("good")), 0.9)
        assert race.incumbent.candidate.spec.name == "good"
        stopped = self.run(race, race.enter(candidate("bad")), 0.4)
        assert stopped.stopped == "worse than the incumbent"

    def test_who_is_surely_too_dear_stops_early(self):
        race = self.race()
        assert self.run(race, race.enter(candidate("a")), 1.0, cost=9.0).stopped == (
            "beyond the budget"
        )
        assert race.promotions() == []

    def test_finalists_are_distinct_structures_and_few_tasks_prove_little(self):
        race = self.race(n=12, rungs=(3, 12))
        spec = PolicySpec("s", source="x")
        for keep in (1, 2, 3):
            one = Candidate(PolicySpec("s", source="x", tunables=(("keep", keep),)), "new")
            self.run(race, race.enter(one), 1.0, cost=7.0 - keep / 10)
        self.run(race, race.enter(candidate("few")), 1.0)
        self.run(race, race.enter(candidate("many")), 1.0)
        heat = next(h for h in race.promotions())
        self.run(race, heat, 1.0)
        names = [r.candidate.structure for r in race.finalists(9)]
        assert len(names) == len(set(names)) == 3
        assert race.finalists(1)[0].rung == 2
        assert Candidate(spec, "new").structure in names


class TestTuner:
    SPACE = (
        Tunable("keep", 1, 16, 6, integer=True, log=False),
        Tunable("span", 0.3, 1.5, 0.9, integer=False, log=False),
    )

    def trials(self, count, seed=0):
        """A made-up landscape: accuracy grows with keep, cost too."""
        found = []
        for i in range(count):
            values = suggest(self.SPACE, found, seed, f"s/{i}")
            accuracy = values["keep"] / 16 - abs(values["span"] - 1.0) / 4
            found.append(Trial(values, accuracy, values["keep"] / 16 - 0.6))
        return found

    def test_the_same_questions_get_the_same_answers(self):
        assert self.trials(12) == self.trials(12)
        assert self.trials(12, seed=1) != self.trials(12)

    def test_the_defaults_come_first_and_nothing_is_tried_twice(self):
        found = self.trials(16)
        assert found[0].values == {"keep": 6, "span": 0.9}
        assert len({tuple(t.values.items()) for t in found}) == 16

    def test_it_finds_the_edge_of_the_budget(self):
        within = [t for t in self.trials(40) if t.excess <= 0]
        best = max(within, key=lambda t: t.accuracy)
        assert best.values["keep"] == 9
        assert abs(best.values["span"] - 1.0) < 0.15

    def test_a_space_ends(self):
        space = (Tunable("keep", 1, 3, 2, integer=True, log=False),)
        found = []
        while (values := suggest(space, found, 0, str(len(found)))) is not None:
            found.append(Trial(values, 0.5))
        assert sorted(t.values["keep"] for t in found) == [1, 2, 3]
        assert suggest((), [], 0, "") == {}
        assert suggest((), [Trial({})], 0, "") is None


class TestScore:
    def test_a_score_is_paired_with_keeping_everything(self):
        full = episodes([True] * 10, range(10, 20))
        result = score(
            episodes([True] * 5 + [False] * 5, [c * 0.75 for c in range(10, 20)]), full, PRICES
        )
        assert result.n == 10
        assert result.accuracy.estimate == 0.5
        assert result.cost_ratio == pytest.approx((0.75, 0.75, 0.75))
        assert result.likely_meets(0.76)
        assert result.surely_exceeds(0.74)
        assert 0 < result.kv_read_share < 1

    def test_rank_leads_back_to_the_budget(self):
        def of(accuracy, ratio):
            return entry("x", accuracy, ratio).score.rank(0.8)

        assert of(0.2, 0.8) > of(1.0, 0.81) > of(0.1, 0.85)
        assert of(0.9, 0.7) > of(0.9, 0.8) > of(0.8, 0.3)

    def test_an_accurate_policy_beyond_the_budget_is_a_better_parent_than_a_failing_one(self):
        def of(accuracy, ratio):
            return entry("x", accuracy, ratio).score.promise(0.8)

        assert of(0.9, 0.79) > of(0.9, 0.9) > of(0.5, 0.5) > of(0.5, 1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budget": 0.0}, "above 0"),
        ({"budget": -0.5}, "above 0"),
        ({"budget": float("nan")}, "above 0"),
        ({"budget": 1.2}, "at most 1"),
        ({"seed": -1}, "seed"),
        ({"proposer": "oracle-of-delphi"}, "unknown proposer"),
        ({"train": 0}, "train"),
        ({"suites": ()}, "suites"),
        ({"suites": ("repo", "repo")}, "each once"),
        ({"rungs": (6, 6, 96)}, "grow"),
        ({"rungs": (6, 48)}, "last rung"),
        ({"episodes": 100}, "too few"),
    ],
)
def test_a_configuration_that_cannot_work_says_why(change, message):
    with pytest.raises(ConfigError, match=message) as caught:
        SearchConfig(**change)
    assert "\n" not in str(caught.value)
