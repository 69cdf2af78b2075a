"""Runs a policy over many conversations; their segments stay resident and are told what changed.

Like `dsl`, this file is loaded into the sandbox as it is, and runs as it is in plain Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from akv_rsi.policies.dsl import Context, Decision, Segment, _decision
from akv_rsi.policies.resident import Asked, Delta

LARGEST_EXPONENT = 64
LARGEST_BASE = 1 << 64


class Meter:
    """Counts the steps of a decision: loop rounds, calls of the policy's own functions.

    The instrumented source takes one from ``fuel`` at each; running out ends the decision.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.fuel: Iterator[int] = iter(())

    def fill(self) -> None:
        """A whole decision's steps."""
        self.fuel = iter(range(1, self.steps + 1))

    def is_empty(self) -> bool:
        """Whether no step was left. Takes one."""
        return next(self.fuel, 0) == 0

    def bounded_range(self, *bounds: int) -> range:
        """`range`, but no longer than a decision may have steps."""
        numbers = range(*bounds)
        if len(numbers) > self.steps:
            raise TimeoutError(f"a range of more than {self.steps} numbers")
        return numbers


def bounded_power(base: float, exponent: float) -> float:
    """``base ** exponent`` that cannot take long: whole numbers stay below a few thousand bits."""
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and (abs(exponent) > LARGEST_EXPONENT or abs(base) > LARGEST_BASE):
        raise OverflowError(f"a power of whole numbers with an exponent above {LARGEST_EXPONENT}")
    result: float = base**exponent
    return result


class Runtime:
    """One policy and the conversations it is deciding on."""

    def __init__(self, policy: Callable[[Context], None], meter: Meter) -> None:
        self._policy = policy
        self._meter = meter
        self._contexts: dict[str, Context] = {}

    def turn(self, deltas: list[Delta], gone: list[str]) -> list[Asked | None]:
        """What the policy asks for in each conversation; None where it failed.

        `decide` raises the reason. Conversations that are ``gone`` are forgotten first.
        """
        for name in gone:
            self._contexts.pop(name, None)
        return [self._try(delta) for delta in deltas]

    def _try(self, delta: Delta) -> Asked | None:
        self.apply(delta)
        try:
            return self.decide(delta[0])
        except Exception:  # noqa: BLE001  # the trial boundary: one failure must not end the batch
            return None

    def decide(self, name: str) -> Asked:
        """What the policy asks for in the conversation as it stands; raises what it raises."""
        # No try or finally here: the sandbox would lose the policy's line in its traceback.
        context = self._contexts[name]
        decision = Decision(context._protected)
        _decision.set(decision)
        self._meter.fill()
        if self._policy(context) is not None:
            raise TypeError("policy(ctx) must return None: it decides through the verbs")
        return decision.asked

    def apply(self, delta: Delta) -> None:
        """Brings the resident context of a conversation up to date."""
        name, afresh, rows, superseded, dropped, attention, numbers = delta
        context = Context() if afresh else self._contexts[name]
        self._contexts[name] = context
        if rows:
            known = list(context.segments)
            for row in rows:
                segment = Segment(*row)
                _link(segment, known, context._by_id)
                known.append(segment)
                context._by_id[segment.id] = segment
            context.segments = tuple(known)
        for number, later in superseded:
            context._by_id[number].superseded_by = later
        for number, is_dropped in dropped:
            context._by_id[number].dropped = is_dropped
        for number, share in attention:
            context._by_id[number].attention = share
        context.turn, context._protected = numbers[0], numbers[1]
        context.tokens, context.attended, context.position_span = numbers[2], numbers[3], numbers[4]
        context.reliable_span, context.cost_so_far, context.budget = numbers[5:]
        current = context.turn - 1
        for segment in context.segments:
            segment.age = current - segment.turn if segment.turn < current else 0


def _link(segment: Segment, known: list[Segment], by_id: dict[int, Segment]) -> None:
    """Tells earlier segments that ``segment`` mentions or answers them."""
    is_text = segment.kind == "assistant" or segment.kind == "reasoning"
    if is_text or segment.kind == "tool_call":
        for number in segment.mentions:
            by_id[number].mentioned_later += 1
    if is_text:
        for number in segment.mentions:
            by_id[number]._notes.append(segment)
        position = len(known) - 1
        while position >= 0 and known[position].turn >= segment.turn - 1:
            if known[position].id not in segment.mentions:
                known[position]._notes.append(segment)
            position -= 1
