"""What policies would have done on a recorded context: their decisions with the recorded actions.

`tasks.replay` does this for a suite's scripts, all at once. Here contexts come one after the other,
from files of any size, and what is wanted are the calls themselves, to be billed by a provider's
rules. Policies stay open in between.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Self

from akv_rsi.errors import AkvError, OpError, PolicyError
from akv_rsi.policies.editor import Edit
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.tasks.cost import PriceModel
from akv_rsi.tasks.decide import Choice, Decide, Decision, open_decider
from akv_rsi.tasks.environment import Message
from akv_rsi.tasks.traces.model import Modelled
from akv_rsi.tasks.traces.needs import Needs, evidence_of, unmet
from akv_rsi.tasks.transcript import Transcript
from akv_rsi.types import Call
from akv_rsi.visibility import Applied

# What asking for a summary adds to the text that is to be summed up.
REQUEST_TOKENS = 50


@dataclass(frozen=True, slots=True)
class Edited:
    """One edit of the text, before call number ``call``.

    ``removed`` tokens vanished; ``rewritten`` ones, behind the first edited token, are prefilled
    again, the last ``answer`` of them, which most APIs would have had to read anew anyway.
    ``summary`` tells the prompt and the output of the call that wrote a summary.
    """

    call: int
    removed: int
    rewritten: int
    answer: int = 0
    summary: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """A policy on one context: its calls, auxiliary ones included, and its edits.

    ``gone`` tells, for each recorded call, the recorded segments of which something was dropped or
    removed by then; ``seen`` what each call saw, as `states` would tell.
    """

    calls: tuple[Call, ...]
    edits: tuple[Edited, ...] = ()
    gone: tuple[frozenset[int], ...] = ()
    seen: tuple[Applied, ...] = ()

    def blind(self, needs: Needs) -> int:
        """How many recorded calls name something that the policy had taken away."""
        return sum(unmet(named, gone) for named, gone in zip(needs, self.gone, strict=True))


@dataclass(frozen=True, slots=True)
class Setting:
    """What policies are told and what is assumed of them.

    ``span`` is the reliable span in tokens; ``summary`` the length a summary is taken to have.
    """

    prices: PriceModel
    span: int = 48_000
    summary: int = 1000
    budget: float = 1.0


class Replayer:
    """Holds policies open; use it as a context manager."""

    def __init__(self, specs: Sequence[PolicySpec], setting: Setting) -> None:
        self._specs = specs
        self._setting = setting
        self._stack = ExitStack()
        self._deciders: list[Decide] = []

    def __enter__(self) -> Self:
        self._deciders = [self._stack.enter_context(open_decider(spec)) for spec in self._specs]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def run(self, context: Modelled) -> list[Replayed | AkvError]:
        """Every policy on ``context``; the error of one that is at fault."""
        runs = (_Run(context, self._setting) for _ in self._deciders)
        return [run.through(decide) for run, decide in zip(runs, self._deciders, strict=True)]


class Ahead:
    """What a recorded context still needs from its call number ``call`` on: hindsight."""

    def __init__(self, context: Modelled) -> None:
        self.call = 0
        self._context = context

    def needed(self) -> frozenset[int]:
        """See `Hindsight`: the last holder of everything that a later call names."""
        return self._needed[self.call]

    @cached_property
    def _needed(self) -> list[frozenset[int]]:
        needed = [frozenset[int]()]
        for named in reversed(evidence_of(self._context)):
            needed.append(needed[-1] | {max(holders) for holders in named})
        return needed[:0:-1]


class _Run:
    """One policy on one context."""

    def __init__(self, context: Modelled, setting: Setting) -> None:
        self._recorded = recorded = context.trajectory
        self._setting = setting
        self._transcript = Transcript(recorded.id, setting.prices, setting.span, setting.budget)
        self._ahead = Ahead(context)
        self._edits: list[Edited] = []
        # The recorded segment that each of the transcript's is, -1 for a summary.
        self._ids: list[int] = []
        self._removed: set[int] = set()

    def through(self, decide: Decide) -> Replayed | AkvError:
        """Decides before every call; the error if the policy is at fault."""
        transcript, segments, known = self._transcript, self._recorded.segments, 0
        gone: list[frozenset[int]] = []
        for number, call in enumerate(self._recorded.calls):
            while known < len(segments) and segments[known].end <= call.prompt:
                transcript.append(segments[known])
                self._ids.append(segments[known].id)
                known += 1
            self._ahead.call = number
            (decision,) = decide([Choice(transcript.snapshot(), self._ahead)])
            try:
                self._apply(decision, number)
            except (OpError, PolicyError) as error:
                return error
            gone.append(self._gone())
            transcript.record(transcript.length, call.output)
        calls, seen = tuple(transcript.calls), tuple(transcript.seen)
        return Replayed(calls, tuple(self._edits), tuple(gone), seen)

    def _gone(self) -> frozenset[int]:
        """The recorded segments of which something is dropped or removed."""
        gone = set(self._removed)
        starts = [segment.start for segment in self._transcript.segments]
        for run in self._transcript.visibility.runs:
            if not run.visible:
                at = max(0, bisect_right(starts, run.start) - 1)
                while at < len(starts) and starts[at] < run.end:
                    gone.add(self._ids[at])
                    at += 1
        return frozenset(gone)

    def _apply(self, decision: Decision | AkvError, number: int) -> None:
        transcript = self._transcript
        if isinstance(decision, AkvError):
            raise decision
        if not isinstance(decision, Edit):
            transcript.apply(decision)
            return
        transcript.check_edit(decision)
        before, computed = transcript.length, transcript.boundary
        first = transcript.segments[min((*decision.remove, *decision.summarise))].start
        summary: tuple[int, int] | None = None
        if decision.summarise:
            kept = transcript.segments[max(decision.summarise)].end
            summary = (kept, self._setting.summary)
            transcript.record_auxiliary(kept + REQUEST_TOKENS, kept, self._setting.summary)
            transcript.edit(decision, Message("assistant", ""), self._setting.summary)
        else:
            transcript.edit(decision)
        transcript.rewind(first)
        transcript.apply(())
        removed = before - transcript.length
        answer = self._recorded.calls[number - 1].output if number else 0
        self._edits.append(Edited(number, removed, computed - removed - first, answer, summary))
        self._renumber(decision)

    def _renumber(self, edit: Edit) -> None:
        """Follows the transcript, which has numbered its segments anew."""
        out = {*edit.remove, *edit.summarise}
        self._removed.update(self._ids[i] for i in out if self._ids[i] >= 0)
        kept = [(i, own) for i, own in enumerate(self._ids) if i not in out]
        if edit.summarise:
            at = sum(i < min(edit.summarise) for i, _ in kept)
            kept.insert(at, (-1, -1))
        self._ids = [own for _, own in kept]
