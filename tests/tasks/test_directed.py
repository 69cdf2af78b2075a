"""The agent manages its own cache: a tool, its words, its limits, and its price."""

from dataclasses import replace

import pytest
from toy import SPAN, WORDS, ToyEngine, toy_suite

from akv_rsi.policies import library
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.tasks.agent import WordFormat, vocabulary
from akv_rsi.tasks.bench import Agent
from akv_rsi.tasks.cost import PRESETS
from akv_rsi.tasks.directed import ABOUT, TOOL, Directed, directed_ops, wish_of
from akv_rsi.tasks.environment import Message, Observation
from akv_rsi.tasks.episode import TaskRef
from akv_rsi.tasks.evaluator import Evaluator
from akv_rsi.tasks.transcript import Transcript
from akv_rsi.types import Drop, Repos, Restore

PRICES = PRESETS["claude"]
DIRECTED = PolicySpec("agent-directed", kind="agent")
TASKS = [TaskRef("toy", seed, "train") for seed in range(6)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "put red v1",
        TOOL,
        *(f"{TOOL} {rest}" for rest in ("drop", "repos 3", "drop x", "forget 3")),
    ],
)
def test_what_is_no_wish(text):
    assert wish_of(text) is None


def test_wishes_are_read_with_their_reasons():
    assert wish_of(f"{TOOL} drop 3 5 because they are old") == (
        "drop", frozenset({3, 5}), "they are old",
    )  # fmt: skip
    assert wish_of(f"{TOOL}  restore 7").messages == {7}
    assert wish_of(f"{TOOL} repos because it is late").reason == "it is late"


def conversation(*actions):
    """A transcript after these actions, each answered by a tool; ops are applied as they come."""
    transcript = Transcript("t", PRICES, SPAN)
    transcript.open((Message("system", "s"), Message("user", "u")), (4, 4))
    asked = []
    for action in (*actions, None):
        ops = directed_ops(transcript.snapshot())
        asked.append(ops)
        transcript.apply(ops)
        transcript.record(transcript.length + 1, 3)
        if action is not None:
            transcript.add(Message("tool_call", action), 5)
            transcript.add(Message("tool_result", "r", "look"), 6)
    return asked


def test_what_is_asked_for_happens_before_the_next_call_and_once():
    asked = conversation(
        "look", "look", f"{TOOL} drop 3 because seen", "look", f"{TOOL} repos", "look"
    )
    assert [[type(op) for op in ops] for ops in asked] == [[], [], [], [Drop], [], [Repos], []]
    assert asked[3][0].ranges == ((13, 19),)


def test_a_restore_gives_a_place_to_what_has_lost_it():
    asked = conversation("look", "look", f"{TOOL} drop 3", f"{TOOL} repos", f"{TOOL} restore 3")
    assert [type(op) for op in asked[-1]] == [Restore, Repos]
    kept = conversation("look", "look", f"{TOOL} drop 3", f"{TOOL} restore 3")
    assert [type(op) for op in kept[-1]] == [Restore]


def test_the_guards_bind_the_agent_too():
    asked = conversation("look", "look", f"{TOOL} drop 0 1 6 7 99")
    assert asked[-1] == (), "pinned, of the current turn, or not there"


class Plain:
    def __init__(self):
        self.seen = []

    def reset(self):
        return Observation((Message("system", "s"), Message("user", "go . next : look red")))

    def step(self, action):
        self.seen.append(action)
        return Observation((Message("tool_result", "ok . next : put red", "look"),))

    def verify(self):
        return True


def test_the_environment_never_sees_the_tool():
    plain = Plain()
    directed = Directed(plain)
    opening = directed.reset()
    assert [m.kind for m in opening.messages] == ["system", "tools", "user"]
    assert opening.messages[1].text == ABOUT
    reply = directed.step(f"{TOOL} drop 3 because old")
    assert reply.messages[0].text == "done . next : look red"
    assert reply.messages[0].tool == TOOL
    directed.step("look red")
    assert directed.step(f"{TOOL} nonsense").messages[0].text.startswith("error : ")
    assert directed.step(f"{TOOL} repos").messages[0].text.endswith("next : put red")
    assert plain.seen == ["look red"]
    assert directed.verify()


class Tidy(ToyEngine):
    """The toy agent, which drops the answers of earlier polls once, when three are there."""

    def _answer(self, request):
        answer = super()._answer(request)
        seen = self.chat.decode([t for t in request.tokens if t not in self.chat.stop])
        calls = seen.split("<assistant>")
        polls = [i for i, call in enumerate(calls) if call.split()[:1] == ["poll"]]
        if len(polls) != 4 or any(TOOL in call for call in calls[1:]):
            return answer
        # Messages: system, tools, user, then an action and its result for each call.
        numbers = " ".join(str(2 + 2 * i) for i in polls[:3])
        tokens = self.chat.encode(Message("tool_call", f"{TOOL} drop {numbers}"))[1:]
        return replace(answer, tokens=tuple(tokens), finish="stop")


def test_an_agent_that_tidies_up_reads_less_and_is_charged_for_its_calls():
    words = [*WORDS, TOOL, "drop", "because", "done", *map(str, range(60))]

    def run(kind, spec):
        engine = kind(WordFormat(vocabulary(words), reliable_span=SPAN))
        with Evaluator(lambda: Agent(engine, engine.chat), PRICES, suites=toy_suite) as one:
            return one.run([spec], TASKS, keep=True)[0]

    full, own = run(ToyEngine, library.spec("full")), run(Tidy, DIRECTED)
    tidied = [(a, b) for a, b in zip(full, own, strict=True) if b.trajectory.ops.ops]
    assert tidied
    for kept, dropped in tidied:
        assert dropped.success == kept.success
        assert dropped.usage.calls == kept.usage.calls + 1
        gone = [s for s in dropped.trajectory.segments if s.tool == "poll"][:3]
        (drop,) = dropped.trajectory.ops.ops
        assert drop.ranges == tuple((s.start, s.end) for s in gone)


def test_an_agent_that_never_calls_it_pays_for_the_description_alone():
    def agent():
        engine = ToyEngine()
        return Agent(engine, engine.chat)

    with Evaluator(agent, PRICES, suites=toy_suite) as one:
        full, own = one.run([library.spec("full"), DIRECTED], TASKS)
    assert [e.success for e in own] == [e.success for e in full]
    assert all(e.outcome == "done" for e in own)
    assert all(a.cost > b.cost for a, b in zip(own, full, strict=True))
