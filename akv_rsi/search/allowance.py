"""The limits of a whole run: evaluations and time, with enough kept back for its end."""

from __future__ import annotations

from akv_rsi.search.config import SearchConfig
from akv_rsi.search.journal import Journal, Outcome


class Allowance:
    """Says before each round whether it can still be had.

    Time differs between equal runs, so what was decided is an event. The first round always is had:
    a search that is stopped has something to choose from.
    """

    def __init__(self, config: SearchConfig, journal: Journal) -> None:
        self.evaluations = 0
        self._config = config
        self._journal = journal
        self._rounds = 0

    def spend(self, episodes: int) -> None:
        """So many more episodes were run."""
        self.evaluations += episodes

    def refusal(self, episodes: int) -> str:
        """Why a round of so many ``episodes`` cannot be had; empty if it can."""
        self._rounds += 1
        limits = (self._config.max_evals, self._config.max_time)
        if limits == (None, None) or self._rounds == 1:
            return ""
        more = episodes + self._config.closing
        event = self._journal.perform(
            "limit", str(self._rounds), lambda: Outcome(self._exceeded(more))
        )
        return str(event.body)

    def _exceeded(self, more: int) -> str:
        evals, time = self._config.max_evals, self._config.max_time
        if evals is not None and self.evaluations + more > evals:
            return f"{self.evaluations} of {evals} evaluations are spent"
        seconds = self._journal.seconds
        if time is not None and seconds * (1 + more / self.evaluations) > time:
            return f"{seconds:.0f} of {time:g} seconds are spent"
        return ""
