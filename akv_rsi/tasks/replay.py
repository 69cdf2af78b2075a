"""Open-loop replay: what a policy would have done, and cost, on a recorded action sequence."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from akv_rsi.errors import AkvError, TaskError
from akv_rsi.policies.editor import Edit
from akv_rsi.policies.resident import AGENT_KINDS
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.tasks.cost import PriceModel
from akv_rsi.tasks.decide import Choice, Decision, open_decider
from akv_rsi.tasks.environment import Message
from akv_rsi.tasks.support import count_lost
from akv_rsi.tasks.transcript import Transcript
from akv_rsi.types import Segment, Trajectory, Usage

# Without a model nobody writes the summaries: they are taken to be this long.
SUMMARY_TOKENS = 32
# What one lost identifier leaves of a task's safety: it is as good as failed, but a policy that
# loses one is nearer to a good one than a policy that loses five.
DECAY = 0.4


@dataclass(frozen=True, slots=True)
class Replay:
    """A policy on a fixed sequence. Equal ``fingerprint`` means: the same decisions throughout.

    ``lost`` counts the identifiers that the recorded agent wrote and could not have known under
    this policy: some earlier message held them, but none that was visible. ``beyond`` counts calls
    whose prompt ended past the reliable span. Both at 0 do not prove that the agent would succeed,
    but anything else makes it unlikely. ``safety`` (0 to 1) says what the losses leave of it, and
    ``reach`` how far out the furthest prompt ended, in reliable spans.
    ``refetched`` is the part of the cost that pays for fetching again what was lost.
    """

    cost: float
    usage: Usage
    fingerprint: str
    lost: int = 0
    beyond: int = 0
    safety: float = 1.0
    refetched: float = 0.0
    reach: float = 0.0


def replay_cost(
    spec: PolicySpec,
    trajectories: Sequence[Trajectory],
    prices: PriceModel,
    reliable_span: int,
    budget: float = 1.0,
) -> list[Replay]:
    """``spec`` on each recorded trajectory: its decisions, with the recorded actions.

    The trajectories must be append-only (recorded under ops, not under text edits). The oracle's
    decisions are those recorded. `PolicyError` and `OpError` when the policy is at fault.
    """
    replays = [
        _replay(
            recorded, Transcript(recorded.id, prices, reliable_span, budget), spec.kind == "oracle"
        )
        for recorded in trajectories
    ]
    results: dict[int, Replay] = {}
    asking: dict[int, Choice] = {}

    def advance(number: int, decided: Decision | AkvError | None) -> None:
        if isinstance(decided, AkvError):
            raise decided
        try:
            asking[number] = replays[number].send(decided)
        except StopIteration as stop:
            asking.pop(number, None)
            results[number] = stop.value

    with open_decider(spec) as decide:
        for number in range(len(replays)):
            advance(number, None)
        while asking:
            for number, decided in zip(list(asking), decide(list(asking.values())), strict=True):
                advance(number, decided)
    return [results[number] for number in range(len(replays))]


def _replay(
    recorded: Trajectory, transcript: Transcript, as_recorded: bool
) -> Generator[Choice, Decision | None, Replay]:
    """Asks for the decision before each recorded call, unless those recorded are to be taken."""
    known = computed = lost = beyond = furthest = 0
    digest = hashlib.sha256()
    for call in (c for c in recorded.calls if not c.auxiliary):
        if call.reused < computed:
            raise TaskError(f"{recorded.id}: its text was edited, so it cannot be replayed")
        computed, first = call.prompt + call.output, known
        while known < len(recorded.segments) and recorded.segments[known].end <= call.prompt:
            known += 1
        for segment in recorded.segments[first:known]:
            transcript.append(segment)
        header = call.prompt - (recorded.segments[known - 1].end if known else 0)
        decision = call.ops if as_recorded else (yield Choice(transcript.snapshot(), None))
        if decision:
            digest.update(f"{transcript.turn}:{decision!r};".encode())
        if isinstance(decision, Edit):
            _edit(transcript, decision, header)
            decision = ()
        transcript.apply(decision or ())
        state = transcript.visibility
        written = _written(recorded.segments, known)
        lost += count_lost(transcript.segments, state.visible_ranges, written)
        beyond += state.next_position > transcript.reliable_span
        furthest = max(furthest, state.next_position)
        transcript.record(transcript.length + header, call.output)
    usage, fingerprint = transcript.usage, digest.hexdigest()[:16]
    return Replay(
        transcript.cost,
        usage,
        fingerprint,
        lost,
        beyond,
        safety=DECAY**lost,
        reach=furthest / transcript.reliable_span,
    )


def _written(segments: Sequence[Segment], start: int) -> Iterator[Segment]:
    """What the agent wrote in answer to the segments before ``start``."""
    return takewhile(lambda segment: segment.kind in AGENT_KINDS, segments[start:])


def _edit(transcript: Transcript, edit: Edit, header: int) -> None:
    transcript.check_edit(edit)
    first = transcript.segments[min((*edit.remove, *edit.summarise))].start
    if edit.summarise:
        kept = transcript.segments[max(edit.summarise)].end
        transcript.record_auxiliary(kept + header, kept, SUMMARY_TOKENS)
        transcript.edit(edit, Message("assistant", ""), header + SUMMARY_TOKENS)
    else:
        transcript.edit(edit)
    transcript.rewind(first)
