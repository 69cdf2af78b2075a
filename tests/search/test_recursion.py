"""What the loop learns about itself: which operator to use, which lesson to heed."""

from random import Random

from akv_rsi.search.bandit import Bandit
from akv_rsi.search.llm.strategy import FEWEST, PATIENCE, Strategies, name_of
from akv_rsi.search.playbook import FORGOTTEN, LONGEST, PRIOR, Playbook


def play(bandit, arms, rounds, seed=0):
    """``arms`` by name: the chance of a gain, and its cost. How often each was chosen."""
    rng, counts = Random(seed), dict.fromkeys(arms, 0)
    for _ in range(rounds):
        arm = bandit.choose(rng)
        bandit.begin(arm)
        chance, cost = arms[arm]
        bandit.tell(arm, float(rng.random() < chance), cost)
        counts[arm] += 1
    return counts


def test_the_arm_that_brings_more_for_its_cost_is_used_most():
    for seed in range(5):
        same = play(Bandit(["a", "b"]), {"a": (0.8, 0.1), "b": (0.2, 0.1)}, 200, seed)
        assert same["a"] > 1.5 * same["b"]
        dear = play(Bandit(["a", "b"]), {"a": (0.5, 0.4), "b": (0.4, 0.1)}, 200, seed)
        assert dear["b"] > 2 * dear["a"], "a little less for a quarter of the cost"
        assert min(*same.values(), *dear.values()) >= 3, "no arm is given up for good"


def test_every_arm_is_tried_before_any_is_tried_again():
    counts = play(Bandit(["a", "b", "c"]), dict.fromkeys("abc", (0.5, 0.1)), 3)
    assert set(counts.values()) == {1}


def test_an_arm_that_is_spent_makes_way():
    bandit = Bandit(["a", "b"])
    play(bandit, {"a": (0.9, 0.1), "b": (0.3, 0.1)}, 100)
    late = play(bandit, {"a": (0.0, 0.1), "b": (0.3, 0.1)}, 150)
    assert late["b"] > late["a"]


def test_the_same_history_chooses_the_same_and_can_be_handed_on():
    first, again = Bandit(["a", "b"]), Bandit(["a", "b"])
    arms = {"a": (0.5, 0.1), "b": (0.4, 0.1)}
    assert play(first, arms, 50) == play(again, arms, 50)
    heir = Bandit(["b", "a", "c"])
    heir.restore(first.state())
    assert heir.state()["a"] == first.state()["a"]
    assert heir.choose(Random(0)) == "c", "what is new is tried first"


def test_losses_are_no_gains():
    bandit = Bandit(["a"])
    bandit.begin("a")
    bandit.tell("a", -5.0, 0.1)
    assert bandit.state()["a"] == [1.0, 0.0, 0.1]


def test_a_lesson_that_helps_rises_and_one_that_does_not_is_forgotten():
    book = Playbook()
    book.add("keep views", "c1")
    book.add("drop polls", "c2")
    book.tell("drop polls", 0.4)
    assert [lesson.text for lesson in book.best(2)] == ["drop polls", "keep views"]
    assert book.best(1)[0].effect == 0.4
    tries = 0
    while any(lesson.text == "keep views" for lesson in book.best(9)):
        book.tell("keep views", -0.1)
        tries += 1
    assert PRIOR * 0.8**tries < FORGOTTEN
    book.tell("keep views", 1.0)
    assert len(book.best(9)) == 1, "what is forgotten is not learned by using it"


def test_a_lesson_learned_twice_keeps_its_record():
    book = Playbook()
    book.add("keep views", "c1")
    book.tell("keep views", 0.2)
    book.add("keep views", "c9")
    book.add("", "c9")
    (lesson,) = book.best(9)
    assert (lesson.learned, lesson.used, lesson.gain) == ("c1", 1, 0.2)
    heir = Playbook()
    heir.inherit(book.state())
    assert heir.best(9) == book.best(9)
    assert book.is_own("keep views")
    assert not heir.is_own("keep views")


def test_the_playbook_is_bounded():
    book = Playbook()
    for i in range(3 * LONGEST):
        book.add(f"lesson {i}", "c")
    assert len(book.best(10_000)) == LONGEST


def contest(ours, theirs, rounds=PATIENCE, seed=0):
    """A challenge in which either side gains with its own chance; the verdicts, and who is left."""
    rng, strategies, verdicts = Random(seed), Strategies(), []
    strategies.challenge("Keep views; drop polls at once.", 0)
    challenger = strategies.challenger
    for number in range(rounds):
        verdicts.append(strategies.judge(number))
        for text, chance in ((challenger, ours), (Strategies().incumbent, theirs)):
            if rng.random() < chance:
                strategies.tell(name_of(text), number, "new@m", 0.1)
    verdicts.append(strategies.judge(rounds))
    return strategies, challenger, [v for v in verdicts if v]


def test_better_advice_takes_over_and_worse_makes_way():
    strategies, challenger, verdicts = contest(1.0, 0.0)
    assert verdicts == ["better"]
    assert strategies.incumbent == challenger
    assert strategies.challenger is None
    strategies, challenger, verdicts = contest(0.0, 1.0)
    assert verdicts == ["worse"]
    assert strategies.incumbent == Strategies().incumbent


def test_equal_advice_is_undecided_and_changes_nothing():
    """PITFALLS 31: the A/A check of prompts."""
    verdicts = [contest(0.5, 0.5, seed=seed)[2] for seed in range(20)]
    assert sum(verdict != ["undecided"] for verdict in verdicts) <= 4
    strategies, _, same = contest(1.0, 1.0)
    assert same == ["undecided"]
    assert strategies.incumbent == Strategies().incumbent


def test_a_few_lucky_rounds_decide_nothing():
    assert contest(1.0, 0.0, rounds=FEWEST)[2] == []
    strategies = Strategies()
    strategies.challenge(strategies.incumbent, 0)
    assert strategies.challenger is None, "its own text is no challenge"
    assert strategies.judge(99) is None
