"""A recorded conversation, call by call: what was there, what the ops did, what it cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from akv_rsi.tasks.cost import PriceModel, cache_end, charge
from akv_rsi.types import Call, Range, Segment, Snapshot, Trajectory, Usage
from akv_rsi.visibility import Visibility


@dataclass(frozen=True, slots=True)
class Turn:
    """One LLM call of a conversation whose text was only appended to.

    ``segments`` had arrived by then; ``before`` and ``seen`` are the states before the call's ops
    and when its last prompt token was computed. The first ``hit`` tokens were cached;
    ``refreshed`` ranges were computed again; ``spent`` is the usage of the calls before.
    """

    number: int
    call: Call
    segments: tuple[Segment, ...]
    before: Visibility
    seen: Visibility
    hit: int
    refreshed: tuple[Range, ...]
    usage: Usage
    spent: Usage

    @property
    def attended(self) -> int:
        """Tokens that the call attends to."""
        return self.seen.attended

    @property
    def span(self) -> int:
        """The position that its first answered token takes."""
        return self.seen.next_position

    def snapshot(
        self, name: str, prices: PriceModel, reliable_span: int, budget: float
    ) -> Snapshot:
        """What the policy was shown."""
        return Snapshot(
            conversation=name,
            turn=self.number,
            segments=self.segments,
            visibility=self.before,
            reliable_span=reliable_span,
            budget=budget,
            cost_so_far=prices.cost(self.spent),
        )


def is_edited(trajectory: Trajectory) -> bool:
    """Whether its text was edited: then what was removed is no part of the record."""
    computed = 0
    for call in trajectory.calls:
        if call.auxiliary or call.reused < computed:
            return True
        computed = call.prompt + call.output
    return False


def retrace(trajectory: Trajectory, prices: PriceModel) -> Iterator[Turn]:
    """The calls of an append-only trajectory, in order. `ValueError` for an edited one."""
    if is_edited(trajectory):
        raise ValueError(f"the text of {trajectory.id} was edited")
    state, end, spent, known = Visibility(), 0, Usage(), 0
    for number, call in enumerate(trajectory.calls):
        while known < len(trajectory.segments) and trajectory.segments[known].end <= call.prompt:
            known += 1
        applied = state.apply(call.ops)
        usage = charge(call, end, applied)
        yield Turn(
            number=number,
            call=call,
            segments=trajectory.segments[:known],
            before=state,
            seen=applied.visibility.append(call.prompt - call.reused),
            hit=min(call.reused, end),
            refreshed=applied.refreshed,
            usage=usage,
            spent=spent,
        )
        spent += usage
        state = applied.visibility.append(call.prompt + call.output - call.reused)
        end = cache_end(call, prices)
