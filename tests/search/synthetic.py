"""A world without a model: real policies on made-up conversations, judged by a rule.

A task is a fixed conversation. Each answer needs some earlier tool results (views for a while,
searches for one turn, polls never); an episode succeeds if none of them had been dropped when it
was needed and the next position stayed inside the reliable span. So the best policy is known: drop
polls at once, searches after their turn, views when they are old, and reposition in time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from random import Random

from akv_rsi.errors import OpError, PolicyError
from akv_rsi.policies import library
from akv_rsi.policies.open import open_policy
from akv_rsi.search.findings import Critique
from akv_rsi.tasks.cost import PRESETS
from akv_rsi.tasks.episode import Episode, TaskRef
from akv_rsi.tasks.replay import replay_cost
from akv_rsi.tasks.transcript import Transcript
from akv_rsi.types import Call, Drop, Repos, Segment, Trajectory

SPAN = 420
PRICES = PRESETS["deepseek"]
VIEWS_LIVE = 6  # turns for which a view's content is asked for

BEST = """from akv_rsi.policies.dsl import Context, drop, repos, tunable

VIEWS = tunable("views", 1, 16, default=7)


def policy(ctx: Context) -> None:
    for seg in ctx.segments:
        if seg.tool == "poll" and seg.age > 0:
            drop(seg)
        if seg.tool == "search" and seg.age >= 2:
            drop(seg)
        if seg.tool == "view" and seg.age >= VIEWS:
            drop(seg)
    if ctx.position_span > 0.8 * ctx.reliable_span:
        repos()
"""


@dataclass(frozen=True)
class World:
    """One task: the conversation, and the segments each call needs to see."""

    trajectory: Trajectory
    needs: list[set[int]]


@cache
def world(task: TaskRef) -> World:
    """The task: odd seeds are long."""
    rng = Random(f"{task.suite}/{task.seed}")
    segments = [
        Segment(0, "system", 0, 0, 12, "system", pinned=True),
        Segment(1, "user", 0, 12, 30, "goal", pinned=True),
    ]
    calls, needs, live = [], [], {}
    reused = 0
    for turn in range(rng.randint(22, 30) if task.seed % 2 else rng.randint(8, 12)):
        end = segments[-1].end
        calls.append(Call(prompt=end + 1, reused=reused, output=4))
        wanted = [i for i, until in live.items() if turn <= until and rng.random() < 0.4]
        needs.append(set(wanted))
        reused = end + 5
        segments.append(Segment(len(segments), "tool_call", turn, end, end + 5, f"do {turn}"))
        tool = rng.choice(("view", "view", "search", "poll"))
        size = {"view": 24, "search": 16, "poll": 20}[tool]
        text = f"{tool} says fact{turn} {rng.randint(100, 999)}"
        start = segments[-1].end
        segments.append(
            Segment(len(segments), "tool_result", turn, start, start + size, text, tool, str(turn))
        )
        if tool != "poll":
            live[len(segments) - 1] = turn + (VIEWS_LIVE if tool == "view" else 1)
    name = f"{task.suite}/{task.seed}"
    return World(Trajectory(name, tuple(segments), tuple(calls), "made up"), needs)


@dataclass
class Totals:
    episodes: int = 0
    shared: int = 0
    cached: int = 0
    computed: int = 0
    engine_s: float = 0.25


@dataclass
class SyntheticEvaluator:
    """Has what a search needs of an evaluator. ``fails`` names policies that hit a time limit."""

    fails: dict[str, str] = field(default_factory=dict)
    prices = PRICES
    seen: list[tuple[tuple[str, ...], tuple[TaskRef, ...]]] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)
    on_episode = staticmethod(lambda _: None)

    def run(self, specs, tasks, keep=False):
        self.seen.append((tuple(s.id for s in specs), tuple(tasks)))
        more = len(specs) * len(tasks)
        total = self.totals
        self.totals = Totals(
            *(
                total.episodes + more,
                total.shared + more,
                total.cached + more,
                total.computed + more,
            )
        )
        rows = [[self._episode(spec, task, keep) for task in tasks] for spec in specs]
        for row in rows:
            for episode in row:
                self.on_episode(episode)
        return rows

    def scripts(self, tasks):
        return [world(task).trajectory for task in tasks]

    def replay_cost(self, spec, trajectories):
        return replay(spec, tuple(trajectories))

    def work(self, jobs):
        """There is no engine to ask: criticism finds nothing."""
        return [Critique() for _ in jobs]

    def _episode(self, spec, task, keep):
        made = world(task)
        success, outcome, detail, transcript = play(spec, task)
        if spec.id in self.fails:
            outcome, success, detail = self.fails[spec.id], True, "timed out"
        length = made.trajectory.segments[-1].end
        kept = transcript.trajectory() if keep else None
        return Episode(
            task, spec.id, success, outcome, transcript.cost, transcript.usage,
            length <= SPAN, detail, kept,
        )  # fmt: skip


# Searches are run again and again by the tests: what is the same is computed once.
@cache
def replay(spec, trajectories):
    return replay_cost(spec, trajectories, PRICES, SPAN)


@cache
def play(spec, task):
    """Success, outcome, detail and the transcript of one episode."""
    made = world(task)
    transcript = Transcript(made.trajectory.id, PRICES, SPAN)
    try:
        if spec.kind == "editor":
            transcript.usage = replay(spec, (made.trajectory,))[0].usage
            return made.trajectory.segments[-1].end <= SPAN, "done", "", transcript
        return judge(spec, made, transcript), "done", "", transcript
    except (PolicyError, OpError) as error:
        return False, "policy_error", f"{type(error).__name__}: {error}", transcript


@cache
def opened(spec):
    return open_policy(spec)


def judge(spec, made, transcript):
    """Plays the conversation under the policy; whether every need was met."""
    known, good, segments = 0, True, made.trajectory.segments
    for number, (call, needed) in enumerate(zip(made.trajectory.calls, made.needs, strict=True)):
        while known < len(segments) and segments[known].end <= call.prompt:
            transcript.append(segments[known])
            known += 1
        snapshot = transcript.snapshot()
        if spec.kind == "oracle":
            ops = _hindsight(snapshot, made.needs[number:])
        else:
            ops = opened(spec).decide(snapshot)
        transcript.apply(ops)
        before = transcript._applied.visibility
        state = before.append(call.prompt - transcript.boundary)
        transcript.record(call.prompt, call.output)
        seen = state.visible_ranges
        for i in needed:
            segment = segments[i]
            good &= any(low <= segment.start and segment.end <= high for low, high in seen)
        good &= state.next_position <= SPAN
    return good


def _hindsight(snapshot, needs):
    later = set().union(*needs)
    boundary, seen = snapshot.boundary, snapshot.visibility.visible_ranges
    ranges = [
        (s.start, s.end)
        for s in snapshot.segments
        if s.end <= boundary
        and not s.pinned
        and s.id not in later
        and any(low <= s.start and s.end <= high for low, high in seen)
    ]
    return (Drop(boundary, tuple(ranges)), Repos(boundary)) if ranges else ()


def planted():
    """The best policy of this world."""
    from akv_rsi.policies.spec import PolicySpec

    return PolicySpec("planted", source=BEST, trusted=True)


def full():
    return library.spec("full")
