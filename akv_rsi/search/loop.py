"""A search from beginning to end: the verbs, and nothing else."""

from __future__ import annotations

from akv_rsi.search.config import SearchConfig
from akv_rsi.search.evaluation import Evaluates
from akv_rsi.search.journal import Journal
from akv_rsi.search.report import SearchReport, record
from akv_rsi.search.stages import Search
from akv_rsi.search.store import Store
from akv_rsi.search.watch import Silence, Watcher


def run(
    config: SearchConfig, evaluator: Evaluates, store: Store, watcher: Watcher | None = None
) -> SearchReport:
    """Searches; a run that has begun is the same calls again, recalled as far as they were made."""
    search = Search(config, evaluator, Journal(store), watcher or Silence())
    search.refer()
    while (heats := search.ask()) and search.pays_for(heats):
        search.race(heats)
        search.criticise()
    choice = search.choose(search.validate())
    search.team.remember()
    return record(search, choice, search.test(choice))
