"""Every kind of policy behind one call: what to do before the next LLM calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, ParamSpec, TypeVar

from akv_rsi.errors import AkvError, PolicyError, TaskError
from akv_rsi.policies import library
from akv_rsi.policies.editor import Edit
from akv_rsi.policies.open import open_policy
from akv_rsi.policies.resident import current_turn_start
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.tasks.directed import directed_ops
from akv_rsi.tasks.environment import Environment, Hindsight
from akv_rsi.types import Drop, Op, Range, Repos, Snapshot

P = ParamSpec("P")
T = TypeVar("T")

# What the oracle leaves free inside the reliable span for the next header and answer.
HEADROOM = 16


class Choice(NamedTuple):
    """A decision to take. ``environment`` is for the oracle alone; None where it is not asked."""

    snapshot: Snapshot
    environment: Environment | Hindsight | None


Decision = tuple[Op, ...] | Edit
# Many decisions at once, of different conversations: each a decision, or why there is none.
Decide = Callable[[Sequence[Choice]], Sequence[Decision | AkvError]]


@contextmanager
def open_decider(spec: PolicySpec) -> Iterator[Decide]:
    """The decisions of ``spec`` while the context is open; `PolicyError` if it cannot be opened."""
    if spec.kind == "oracle":
        yield _each(lambda choice: oracle(choice.snapshot, choice.environment))
    elif spec.kind == "agent":
        yield _each(lambda choice: directed_ops(choice.snapshot))
    elif spec.kind == "editor":
        change = library.decider(spec)
        yield _each(lambda choice: change(choice.snapshot))
    else:
        with open_policy(spec) as policy:
            yield lambda choices: policy.decide_many([choice.snapshot for choice in choices])


def oracle(snapshot: Snapshot, environment: Environment | Hindsight | None) -> tuple[Op, ...]:
    """Hindsight: drops every message the rest of the task does not need.

    The guards bind it too. It repositions only when the next answer would leave the reliable span.
    """
    if environment is None or not isinstance(environment, Hindsight):
        raise TaskError("the oracle needs an environment with needed(): see Hindsight")
    if not snapshot.segments:  # a recording may begin with a call of which it shows no prompt
        return ()
    needed, current = ask(environment.needed), current_turn_start(snapshot)
    seen = snapshot.visibility.visible_ranges
    ranges: list[Range] = []
    for segment in snapshot.segments:
        if segment.end > current:
            break
        if segment.id not in needed and not segment.pinned:
            ranges.extend(_inside(seen, segment.start, segment.end))
    ops: list[Op] = [Drop(snapshot.boundary, tuple(ranges))] if ranges else []
    next_position = snapshot.visibility.next_position
    arrived = snapshot.segments[-1].end - snapshot.boundary
    gaps = next_position > _tokens(seen) - _tokens(ranges)
    if gaps and next_position + arrived + HEADROOM > snapshot.reliable_span:
        ops.append(Repos(snapshot.boundary))
    return tuple(ops)


def ask(question: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The answer of an environment; whatever it raises is a `TaskError`."""
    try:
        return question(*args, **kwargs)
    except Exception as error:  # suites are foreign code: the trial boundary
        raise TaskError(f"the environment raised {type(error).__name__}: {error}") from error


def _each(decide: Callable[[Choice], Decision]) -> Decide:
    """Decisions one by one."""

    def decide_all(choices: Sequence[Choice]) -> list[Decision | AkvError]:
        out: list[Decision | AkvError] = []
        for choice in choices:
            try:
                out.append(decide(choice))
            except (PolicyError, TaskError) as error:
                out.append(error)
        return out

    return decide_all


def _inside(ranges: Sequence[Range], start: int, end: int) -> list[Range]:
    clipped = ((max(low, start), min(high, end)) for low, high in ranges)
    return [(low, high) for low, high in clipped if low < high]


def _tokens(ranges: Sequence[Range]) -> int:
    return sum(end - start for start, end in ranges)
