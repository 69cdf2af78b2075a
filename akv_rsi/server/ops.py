"""From the cache ops of a request to the history of the contract.

A server keeps no state, so each request carries all ops so far, and the same request means the same
history on any replica. Guards hold for every op at its own boundary: the attention sinks and the
turn that was current there cannot be dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from akv_rsi.errors import GuardError, OpError
from akv_rsi.policies.ranges import merge, subtract
from akv_rsi.server.prompt import Prompt
from akv_rsi.server.rules import rule_drops
from akv_rsi.server.wire import CacheOp, ChatRequest
from akv_rsi.types import Drop, Op, OpHistory, Range, Refresh, Repos, Restore
from akv_rsi.visibility import Visibility


@dataclass(slots=True)
class _Group:
    """What is asked for at one boundary; ``rules`` are drops that yield to the explicit ops."""

    drop: list[Range] = field(default_factory=list)
    restore: list[Range] = field(default_factory=list)
    refresh: list[Range] = field(default_factory=list)
    repos: bool = False
    rules: list[Range] = field(default_factory=list)

    def ops(self, boundary: int, state: Visibility) -> Iterable[Op]:
        """In canonical order; ``state`` is what is visible before them."""
        asked = _whole(self.drop, "drop", boundary)
        drops = merge([*asked, *self._by_rule(asked, state)])
        if drops:
            yield Drop(boundary, tuple(drops))
        if self.restore:
            yield Restore(boundary, _whole(self.restore, "restore", boundary))
        if self.repos:
            yield Repos(boundary)
        if self.refresh:
            yield Refresh(boundary, _whole(self.refresh, "refresh", boundary))

    def _by_rule(self, asked: Sequence[Range], state: Visibility) -> list[Range]:
        """What rules drop that is still visible and not spoken of."""
        hidden = [(run.start, run.end) for run in state.runs if not run.visible]
        spoken = [*asked, *self.restore, *self.refresh, *hidden]
        return subtract(merge(self.rules), merge(spoken))


def history_of(request: ChatRequest, prompt: Prompt) -> OpHistory:
    """All ops of a request; `OpError` or `GuardError` when one breaks the contract."""
    groups: dict[int, _Group] = {}

    def at(boundary: int) -> _Group:
        if boundary > prompt.length:
            raise OpError(
                f"an op at token {boundary} is past the messages ({prompt.length} tokens)"
            )
        return groups.setdefault(boundary, _Group())

    for after, numbers in (request.drop_message or {}).items():
        at(_end(prompt, after)).drop += [_span(prompt, number) for number in numbers]
    for after in request.reposition or ():
        at(_end(prompt, after)).repos = True
    for op in request.cache_ops or ():
        _add(at(_boundary(prompt, op)), op, prompt)
    for boundary, ranges in rule_drops(request.rules, prompt):
        at(boundary).rules += ranges
    return _checked(groups, prompt)


def plain_history(ops: Sequence[CacheOp], length: int) -> OpHistory:
    """The ops of a request that has no messages: token offsets only."""
    groups: dict[int, _Group] = {}
    for op in ops:
        if op.boundary is None or op.after is not None or op.messages is not None:
            raise OpError("without messages an op needs a boundary and ranges in tokens")
        if op.boundary > length:
            raise OpError(f"an op at token {op.boundary} is past the prompt ({length} tokens)")
        _add(groups.setdefault(op.boundary, _Group()), op, None)
    return OpHistory(tuple(op for b in sorted(groups) for op in groups[b].ops(b, Visibility())))


def _add(group: _Group, op: CacheOp, prompt: Prompt | None) -> None:
    if op.op == "repos":
        if op.ranges is not None or op.messages is not None:
            raise OpError("a repos is about all visible tokens: it takes no ranges or messages")
        group.repos = True
        return
    ranges: list[Range] = list(op.ranges or ())
    if prompt is not None:
        ranges += [_span(prompt, number) for number in op.messages or ()]
    if not ranges:
        raise OpError(f"a {op.op} needs ranges of tokens or messages")
    getattr(group, op.op).extend(ranges)


def _boundary(prompt: Prompt, op: CacheOp) -> int:
    if (op.boundary is None) == (op.after is None):
        raise OpError(f"a {op.op} needs one of boundary (a token) and after (a message)")
    return _end(prompt, op.after) if op.after is not None else op.boundary or 0


def _end(prompt: Prompt, number: int) -> int:
    return _span(prompt, number)[1]


def _span(prompt: Prompt, number: int) -> Range:
    if not 0 <= number < len(prompt.messages):
        raise OpError(
            f"an op names message {number}, but there are {len(prompt.messages)}, from 0 on"
        )
    return prompt.rendered.span(number)


def _whole(ranges: Sequence[Range], verb: str, boundary: int) -> tuple[Range, ...]:
    """The ranges, ascending and merged; `OpError` where two overlap or one is reversed."""
    ordered = sorted(ranges)
    for start, end in ordered:
        if end <= start:
            raise OpError(f"{verb} at {boundary}: range [{start}, {end}) is empty or reversed")
    for (_, end), (start, _) in pairwise(ordered):
        if start < end:
            raise OpError(f"{verb} at {boundary}: token {start} is named twice")
    return tuple(merge(ordered))


def _checked(groups: dict[int, _Group], prompt: Prompt) -> OpHistory:
    state, history = Visibility(), list[Op]()
    for boundary in sorted(groups):
        state = state.append(boundary - state.length)
        ops = tuple(groups[boundary].ops(boundary, state))
        state = state.apply(ops, prompt.pinned).visibility
        current = prompt.turn_start(boundary)
        for op in ops:
            if isinstance(op, Drop) and op.ranges[-1][1] > current:
                raise GuardError(f"{op} would drop text of the turn that is current there")
        history.extend(ops)
    return OpHistory(tuple(history))
