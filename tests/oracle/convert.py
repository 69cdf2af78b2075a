"""The oracle's plain tuples as the ops of akv_rsi: the only place here that knows both."""

from __future__ import annotations

from collections.abc import Iterable

from akv_rsi import types

from .book import Op


def converted(ops: Iterable[Op]) -> tuple[types.Op, ...]:
    """The same ops in akv_rsi's words; nothing is checked."""
    return tuple(_converted(op) for op in ops)


def _converted(op: Op) -> types.Op:
    match op:
        case ("drop", boundary, ranges):
            return types.Drop(boundary, tuple(ranges))
        case ("restore", boundary, ranges):
            return types.Restore(boundary, tuple(ranges))
        case ("refresh", boundary, ranges):
            return types.Refresh(boundary, tuple(ranges))
        case ("repos", boundary):
            return types.Repos(boundary)
    raise ValueError(f"not an op: {op}")


def history_of(ops: Iterable[Op]) -> types.OpHistory:
    """The same history in akv_rsi's words; `OpError` where its form is wrong."""
    return types.OpHistory(converted(ops))
