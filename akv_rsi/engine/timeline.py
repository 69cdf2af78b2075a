"""The ops of one request, with the state after each boundary: all checked before anything runs."""

from __future__ import annotations

from collections.abc import Sequence

from akv_rsi.engine.node import Groups
from akv_rsi.errors import OpError
from akv_rsi.types import Drop, OpHistory, Range, Repos
from akv_rsi.visibility import Applied, Visibility, check_pinned


class Timeline:
    """Groups of ops by boundary, and what each of them does."""

    def __init__(
        self, history: OpHistory, prompt: int, pinned: Sequence[Range], known: Sequence[Applied]
    ) -> None:
        """Checks ``history`` on a prompt of ``prompt`` tokens.

        ``known`` states of the first groups were found in the cache and are trusted; what is pinned
        differs between requests and is checked for all of them. Raises `OpError` or `GuardError`.
        """
        self.groups: Groups = tuple(history.groups())
        self.applied = list(known)
        for op in history:
            if op.boundary > prompt:
                raise OpError(f"{op} lies past the end of the prompt ({prompt} tokens)")
            if isinstance(op, Drop):
                check_pinned(op, pinned)
        state = known[-1].visibility if known else Visibility()
        for boundary, ops in self.groups[len(known) :]:
            self.applied.append(state.append(boundary - state.length).apply(ops, pinned))
            state = self.applied[-1].visibility

    def boundary(self, group: int) -> int | None:
        """Where the group with that index happens; None when there are no more."""
        return self.groups[group][0] if group < len(self.groups) else None

    def before(self, length: int) -> Visibility:
        """The state of the first ``length`` tokens, without the ops at that very boundary."""
        state = Visibility()
        for (boundary, _), applied in zip(self.groups, self.applied, strict=True):
            if boundary >= length:
                break
            state = applied.visibility
        return state.append(length - state.length)

    def refreshed(self, group: int) -> int:
        """The tokens recomputed by this and later groups."""
        return sum(
            end - start for applied in self.applied[group:] for start, end in applied.refreshed
        )

    def last_repos(self, length: int) -> int:
        """The index of the last group with a Repos before token ``length``; -1 without any."""
        return max(
            (
                group
                for group, (boundary, ops) in enumerate(self.groups)
                if boundary < length and any(isinstance(op, Repos) for op in ops)
            ),
            default=-1,
        )

    def highest_position(self, length: int) -> int:
        """The highest position any of ``length`` tokens has when it is computed."""
        highest, state = 0, Visibility()
        for (boundary, _), applied in zip(self.groups, self.applied, strict=True):
            highest = max(highest, state.next_position + boundary - state.length)
            state = applied.visibility
        return max(highest, state.next_position + length - state.length) - 1
