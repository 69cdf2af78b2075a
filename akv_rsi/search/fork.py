"""Forks of a recorded call: the same prompt, asked again with other ops just before it.

Everything up to the call is in the cache after the first fork, so each further one computes only
the tokens that arrived since the call before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from akv_rsi.engine.request import Request
from akv_rsi.errors import TaskError
from akv_rsi.policies.ranges import intersect, merge, subtract
from akv_rsi.search.walk import Step
from akv_rsi.tasks.agent import ChatFormat
from akv_rsi.tasks.environment import Message
from akv_rsi.types import Drop, Op, Range, Refresh, Repos, Restore, Segment


@dataclass(frozen=True, slots=True)
class Variant:
    """How a call is asked again: as it was, but with the ``restored`` tokens visible.

    ``repos`` closes the gaps besides, ``refresh`` recomputes all that is visible.
    """

    restored: tuple[Range, ...] = ()
    repos: bool = False
    refresh: bool = False


class Fork:
    """A call that can be asked again; `TaskError` if its tokens cannot be told from its text."""

    def __init__(self, chat: ChatFormat, step: Step) -> None:
        self.step = step
        self._chat = chat
        tokens = [token for s in step.segments for token in _encoded(chat, s)]
        self._tokens = (*tokens, *chat.prompt())
        if len(self._tokens) != step.call.prompt:
            raise TaskError(f"call {step.turn} has a prompt that its messages do not add up to")

    def request(self, variant: Variant) -> Request:
        """The call under ``variant``."""
        return Request(
            tokens=self._tokens,
            history=self.step.history.extend(reopened(self.step, variant)),
            max_new_tokens=self._chat.max_new_tokens,
            stop=self._chat.stop,
        )


def reopened(step: Step, variant: Variant) -> tuple[Op, ...]:
    """The ops of a call, changed so that it sees the restored tokens too.

    What has lost its place is given one by a Repos, as the contract demands.
    """
    own: Mapping[type[Op], Op] = {type(op): op for op in step.call.ops}
    boundary, runs = step.before.length, step.before.runs
    hidden = merge((run.start, run.end) for run in runs if not run.visible)
    placeless = merge((run.start, run.end) for run in runs if run.position is None)
    asked = merge(variant.restored)
    drop = subtract(_ranges(own.get(Drop)), asked)
    restore = merge([*_ranges(own.get(Restore)), *intersect(hidden, asked)])
    ops: list[Op] = [Drop(boundary, tuple(drop))] if drop else []
    if restore:
        ops.append(Restore(boundary, tuple(restore)))
    if variant.repos or Repos in own or intersect(placeless, restore):
        ops.append(Repos(boundary))
    refresh = tuple(_ranges(own.get(Refresh)))
    if variant.refresh:
        refresh = step.before.apply(ops).visibility.visible_ranges
    return (*ops, Refresh(boundary, refresh)) if refresh else tuple(ops)


def _ranges(op: Op | None) -> list[Range]:
    return [] if op is None or isinstance(op, Repos) else list(op.ranges)


def _encoded(chat: ChatFormat, segment: Segment) -> Sequence[int]:
    tokens = chat.encode(Message(segment.kind, segment.text, segment.tool, segment.call))
    if len(tokens) != segment.tokens:
        raise TaskError(f"segment {segment.id} does not say which tokens it was written in")
    return tokens
