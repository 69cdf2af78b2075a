"""A recorded episode walked through once more beside its expert.

Environments are deterministic, so the recorded actions lead to the same states again. In each of
them the environment can say what the right action is and which messages are still needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from akv_rsi.errors import TaskError
from akv_rsi.policies.ranges import intersect, merge
from akv_rsi.tasks.bench import Bench
from akv_rsi.tasks.decide import ask
from akv_rsi.tasks.environment import Expert, Hindsight
from akv_rsi.tasks.episode import TaskRef
from akv_rsi.types import Call, OpHistory, Range, Segment, Snapshot, Trajectory
from akv_rsi.visibility import Visibility


@dataclass(frozen=True, slots=True)
class Step:
    """One LLM call of a recorded episode, and what the environment knew at that moment.

    ``segments`` are those of its prompt. ``before`` and ``after`` are the cache state around its
    ops, ``history`` the ops of earlier calls. The agent ``said`` one thing, the expert would have
    said what is ``right`` (None without an expert); ``needed`` are the ids of the segments that
    this or a later step depends on (None without hindsight).
    """

    turn: int
    call: Call
    segments: tuple[Segment, ...]
    before: Visibility
    after: Visibility
    history: OpHistory
    said: str
    right: str | None
    needed: frozenset[int] | None

    @property
    def departs(self) -> bool:
        """Whether the agent left the expert's path here."""
        return self.right is not None and not same_action(self.said, self.right)

    def snapshot(self, name: str, reliable_span: int) -> Snapshot:
        """What a policy could know before this call."""
        return Snapshot(name, self.turn, self.segments, self.before, reliable_span)

    def hidden(self) -> dict[int, list[Range]]:
        """The tokens of its prompt that the call did not see, by segment id."""
        gone = merge((run.start, run.end) for run in self.after.runs if not run.visible)
        parts = {s.id: intersect(gone, [(s.start, s.end)]) for s in self.segments}
        return {number: ranges for number, ranges in parts.items() if ranges}


def walk(bench: Bench, task: TaskRef, recorded: Trajectory) -> Iterator[Step]:
    """The calls of ``recorded``, in order.

    `TaskError` when the environment raises, or the text was edited: what an edit took away cannot
    be restored in the cache.
    """
    if any(call.auxiliary or call.reused < before for before, call in _preceded(recorded.calls)):
        raise TaskError("its text was edited, so that nothing can be restored")
    environment = ask(bench.environment, task)
    ask(environment.reset)
    state, history, known = Visibility(), OpHistory(), 0
    for turn, call in enumerate(recorded.calls):
        while known < len(recorded.segments) and recorded.segments[known].end <= call.prompt:
            known += 1
        if known == len(recorded.segments):
            return  # the last call was never answered
        after, said = state.apply(call.ops).visibility, recorded.segments[known].text
        yield Step(
            turn,
            call,
            recorded.segments[:known],
            state,
            after,
            history,
            said,
            ask(environment.expert) if isinstance(environment, Expert) else None,
            ask(environment.needed) if isinstance(environment, Hindsight) else None,
        )
        ask(environment.step, said)
        state = after.append(call.prompt + call.output - call.reused)
        history = history.extend(call.ops)


def _preceded(calls: Sequence[Call]) -> Iterator[tuple[int, Call]]:
    """Each call, and how many tokens were computed before it."""
    return zip([0, *(call.prompt + call.output for call in calls)], calls, strict=False)


def same_action(said: str, right: str) -> bool:
    """Whether two actions are the same but for their spacing."""
    return said.split() == right.split()
