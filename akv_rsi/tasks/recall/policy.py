"""Any policy as a variant: it decides before each call of the transcript, and before the questions.

So policies that were found with one model, or in one world, can be tried on another: transfer.
"""

from __future__ import annotations

from akv_rsi.errors import AkvError
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.tasks.agent import ChatFormat
from akv_rsi.tasks.cost import PRESETS
from akv_rsi.tasks.recall.transcript import Recall
from akv_rsi.tasks.recall.variants import Prompt, Summarise, Variant, edited
from akv_rsi.tasks.traces.model import Modelled
from akv_rsi.tasks.traces.replays import Replayer, Setting
from akv_rsi.types import Call, OpHistory, Segment, Trajectory

_AGENT = ("tool_call", "assistant")


def by_policy(spec: PolicySpec) -> Variant:
    """The variant that ``spec`` makes of a transcript; raises the `AkvError` of one at fault.

    Text it sums up is gone, since nobody writes the summary here. What refreshes along the way
    cost is not counted as prefilled.
    """

    def variant(recall: Recall, chat: ChatFormat, summarise: Summarise) -> Prompt:
        setting = Setting(PRESETS["claude"], chat.reliable_span)
        with Replayer([spec], setting) as replayer:
            (replayed,) = replayer.run(context_of(recall))
        if isinstance(replayed, AkvError):
            raise replayed
        if replayed.edits:
            return edited(
                recall, [i for i, _ in enumerate(recall.spans) if i not in replayed.gone[-1]]
            )
        ops = tuple(op for call in replayed.calls for op in call.ops)
        return Prompt(recall.tokens, OpHistory(ops), 0)

    return variant


def context_of(recall: Recall) -> Modelled:
    """The transcript as recorded calls: every message of the agent is one, and one is to come."""
    segments, calls, turn, reused = list[Segment](), list[Call](), 0, 0
    for number, (message, (start, end)) in enumerate(
        zip(recall.messages, recall.spans, strict=True)
    ):
        spoken = message.kind in _AGENT
        if spoken:
            calls.append(Call(start, reused, end - start))
            turn, reused = len(calls) - 1, end
        segments.append(
            Segment(
                id=number,
                kind=message.kind,
                turn=turn,
                start=start,
                end=end,
                text=message.text,
                tool=message.tool,
                call=message.call,
                pinned=number == 0,
            )
        )
    calls.append(Call(len(recall.tokens), reused, 1))
    trajectory = Trajectory("recall", tuple(segments), tuple(calls))
    return Modelled(trajectory, "start", (None,) * len(calls), (0,) * len(calls))
