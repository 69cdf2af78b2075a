"""What policies would have done on a recorded context: their decisions with the recorded actions.

`tasks.replay` does this for a suite's scripts, all at once. Here contexts come one after the other,
from files of any size, and what is wanted are the calls themselves, to be billed by a provider's
rules. Policies stay open in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from akv_rsi.errors import AkvError, OpError, PolicyError
from akv_rsi.policies.editor import Edit
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.tasks.cost import PriceModel
from akv_rsi.tasks.decide import Choice, Decide, Decision, open_decider
from akv_rsi.tasks.environment import Message
from akv_rsi.tasks.traces.model import Modelled
from akv_rsi.tasks.transcript import Transcript
from akv_rsi.types import Call, Trajectory

# What asking for a summary adds to the text that is to be summed up.
REQUEST_TOKENS = 50


@dataclass(frozen=True, slots=True)
class Edited:
    """One edit of the text, before call number ``call``.

    ``removed`` tokens vanished; ``rewritten`` ones, behind the first edited token, are prefilled
    again. ``summary`` tells the prompt and the output of the call that wrote a summary.
    """

    call: int
    removed: int
    rewritten: int
    summary: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """A policy on one context: its calls, auxiliary ones included, and its edits."""

    calls: tuple[Call, ...]
    edits: tuple[Edited, ...] = ()


@dataclass(frozen=True, slots=True)
class Setting:
    """What policies are told and what is assumed of them.

    ``span`` is the reliable span in tokens; ``summary`` the length a summary is taken to have.
    """

    prices: PriceModel
    span: int = 48_000
    summary: int = 1000


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
        return [self._run(context.trajectory, decide) for decide in self._deciders]

    def _run(self, recorded: Trajectory, decide: Decide) -> Replayed | AkvError:
        transcript = Transcript(recorded.id, self._setting.prices, self._setting.span)
        edits: list[Edited] = []
        known = 0
        for number, call in enumerate(recorded.calls):
            while known < len(recorded.segments) and recorded.segments[known].end <= call.prompt:
                transcript.append(recorded.segments[known])
                known += 1
            (decision,) = decide([Choice(transcript.snapshot(), None)])
            try:
                self._apply(decision, number, transcript, edits)
            except (OpError, PolicyError) as error:
                return error
            transcript.record(transcript.length, call.output)
        return Replayed(tuple(transcript.calls), tuple(edits))

    def _apply(
        self,
        decision: Decision | AkvError,
        number: int,
        transcript: Transcript,
        edits: list[Edited],
    ) -> None:
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
        edits.append(Edited(number, removed, computed - removed - first, summary))
