"""Oracles with one planted fault each: what a broken engine would compute.

They show that a history is sensitive (the fault moves some logit by far more than the tolerance)
and, compared with the engine, that the comparison fails when it must.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .oracle import Oracle


class _Faulty(Oracle):
    def __init__(self, model: Any, token: int) -> None:
        super().__init__(model)
        self.token = token


class WrongDelta(_Faulty):
    """A repositioned token is read one position off: its delta is wrong by one."""

    def position(self, token: int) -> int:
        right = super().position(token)
        moved = token == self.token and right != self.book.seen[token][0]
        return right + moved * self.book.visible[token]


class WrongMask(_Faulty):
    """A dropped token's mask bit stays set; it is read where its KV was computed."""

    def position(self, token: int) -> int:
        return (self.book.seen[token][0] or 0) if token == self.token else super().position(token)

    def sees(self, query: int, token: int) -> bool:
        return super().sees(query, token) or (token == self.token and query > token)


class StaleVersion(_Faulty):
    """A refreshed token keeps its old KV."""

    def overwrite(self, chosen: list[int], keys: list[Tensor], values: list[Tensor]) -> None:
        kept = [place for place, token in enumerate(chosen) if token != self.token]
        super().overwrite(
            [chosen[k] for k in kept], [k[:, kept] for k in keys], [v[:, kept] for v in values]
        )
