"""Open-loop replay: what a policy would have done, and cost, on a recorded action sequence."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from akv_rsi.errors import AkvError, TaskError
from akv_rsi.policies.editor import Edit
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.tasks.cost import PriceModel
from akv_rsi.tasks.decide import Choice, Decision, open_decider
from akv_rsi.tasks.environment import Message
from akv_rsi.tasks.transcript import Transcript
from akv_rsi.types import Trajectory, Usage

# Without a model nobody writes the summaries: they are taken to be this long.
SUMMARY_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Replay:
    """A policy on a fixed sequence. Equal ``fingerprint`` means: the same decisions throughout."""

    cost: float
    usage: Usage
    fingerprint: str


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
    known = computed = 0
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
        transcript.record(transcript.length + header, call.output)
    return Replay(transcript.cost, transcript.usage, digest.hexdigest()[:16])


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
