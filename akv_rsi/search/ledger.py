"""One account for all that a search spends: episodes, model tokens, seconds, dollars, LLM tokens.

L1  spent + reserved never exceeds a limit at the moment of reserving
L2  a reservation is settled once, with what was really spent
L3  what is settled is added to ``spent`` whole, also when it is more than was reserved
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from akv_rsi.errors import LedgerError


@dataclass(frozen=True, slots=True)
class Spend:
    """An amount.

    ``episodes`` run, the agent's ``tokens`` computed or sampled, wall-clock ``seconds``; for
    proposers and critics, ``usd`` and ``llm_tokens`` in and out.
    """

    episodes: float = 0
    tokens: float = 0
    seconds: float = 0
    usd: float = 0
    llm_tokens: float = 0

    def __add__(self, other: Spend) -> Spend:
        return Spend(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Spend)))

    def __sub__(self, other: Spend) -> Spend:
        return Spend(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(Spend)))

    def within(self, limit: Spend) -> bool:
        """Whether no part exceeds ``limit``'s."""
        return all(getattr(self, f.name) <= getattr(limit, f.name) for f in fields(Spend))


UNLIMITED = Spend(*[math.inf] * len(fields(Spend)))


class Ledger:
    """Reserve before spending, settle after.

    >>> ledger = Ledger(Spend(10, math.inf, math.inf))
    >>> ticket = ledger.reserve(Spend(episodes=8))
    >>> ledger.can_reserve(Spend(episodes=3))
    False
    >>> ledger.settle(ticket, Spend(episodes=6, seconds=2.5))
    >>> ledger.can_reserve(Spend(episodes=3)), ledger.spent.episodes
    (True, 6)
    """

    def __init__(self, limit: Spend = UNLIMITED) -> None:
        self.limit = limit
        self.spent = Spend()
        self._reserved: dict[int, Spend] = {}
        self._tickets = 0

    @property
    def reserved(self) -> Spend:
        """What is promised and not settled."""
        return sum(self._reserved.values(), Spend())

    @property
    def free(self) -> Spend:
        """What may still be reserved."""
        return self.limit - self.spent - self.reserved

    def can_reserve(self, amount: Spend) -> bool:
        """Whether ``amount`` fits beside what is spent and reserved."""
        return (self.spent + self.reserved + amount).within(self.limit)

    def reserve(self, amount: Spend) -> int:
        """Sets ``amount`` aside; the ticket is for `settle`. `LedgerError` when it does not fit."""
        if not self.can_reserve(amount):
            raise LedgerError(f"{amount} does not fit: {self.free} is free of {self.limit}")
        self._tickets += 1
        self._reserved[self._tickets] = amount
        return self._tickets

    def settle(self, ticket: int, actual: Spend) -> None:
        """Books ``actual`` in place of the reservation; `LedgerError` for one already settled."""
        if self._reserved.pop(ticket, None) is None:
            raise LedgerError(f"reservation {ticket} is not open")
        self.spent += actual
