"""Who proposes in a search, and what they learn together: lessons, and which operator to use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from akv_rsi.policies import library
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.search.bandit import Bandit
from akv_rsi.search.choice import keep_everything
from akv_rsi.search.config import BASELINES, SAMPLES, SEARCH, SearchConfig
from akv_rsi.search.grammar import Grammar, Vocabulary, render
from akv_rsi.search.journal import Journal, Outcome
from akv_rsi.search.ledger import Spend
from akv_rsi.search.playbook import Playbook
from akv_rsi.search.propose import BEST_OF_N, EVOLVE, GrammarProposer, ListProposer, Proposer
from akv_rsi.search.screen import Screen
from akv_rsi.search.warm import inheritance
from akv_rsi.search.watch import Watcher
from akv_rsi.types import Trajectory

if TYPE_CHECKING:
    from akv_rsi.search.llm.exchange import Exchange


class Team:
    """The proposers of a search's arms."""

    def __init__(self, config: SearchConfig, journal: Journal, watcher: Watcher) -> None:
        self.playbook = Playbook()
        self.bandit = Bandit(())
        self._config = config
        self._journal = journal
        self._watcher = watcher
        self._exchange: Exchange | None = None

    @property
    def spent(self) -> Spend:
        """What models that propose have cost."""
        return Spend() if self._exchange is None else self._exchange.ledger.spent

    def meet(self) -> None:
        """Finds out whether the models asked for answer; `ConfigError` if one does not."""
        if not self._config.llm:
            return
        from akv_rsi.search.llm.connect import ENOUGH, connect, warning

        self._exchange = connect(self._config)
        self._exchange.probe(self._journal)
        if self._exchange.proposals < ENOUGH:
            self._watcher.say(warning(self._exchange.proposals))

    def proposers(self, recordings: Sequence[Trajectory], screen: Screen) -> dict[str, Proposer]:
        """A proposer for each arm, which speaks of what occurs in ``recordings``."""
        grammar = Grammar(Vocabulary.of(recordings))
        keep = keep_everything()
        specs = [library.spec(name) for name in library.names() if name != keep.name]
        programs = [spec for spec in specs if spec.kind == "program"]
        atoms = [
            PolicySpec("grammar", source=render(atom), trusted=True) for atom in grammar.atoms()
        ]
        before = self._inherited()
        seeds = [*before.get("policies", ()), *programs, *atoms]
        search: Proposer = GrammarProposer(grammar, EVOLVE, seeds, self.playbook)
        if self._exchange is not None:
            search = self._with_models(self._exchange, search, grammar, screen)
            self.bandit.restore(before.get("bandit", {}))
        every: dict[str, Proposer] = {
            SEARCH: search,
            SAMPLES: GrammarProposer(grammar, BEST_OF_N),
            BASELINES: ListProposer(specs),
        }
        return {name: every[name] for name in self._config.arms}

    def remember(self) -> None:
        """Records what a later run may begin with, where more than policies was learned."""
        if self._config.evidence or self._config.llm:
            memory = {"playbook": self.playbook.state(), "bandit": self.bandit.state()}
            self._journal.perform("memory", "", lambda: Outcome(memory))

    def _inherited(self) -> dict[str, Any]:
        """What a warm start brings; its lessons go into the playbook."""
        if not self._config.warm_start:
            return {}
        source = Path(self._config.warm_start)
        event = self._journal.perform("warm-start", "", lambda: Outcome(inheritance(source)))
        self.playbook.inherit(event.body["playbook"])
        brought: dict[str, Any] = event.body
        return brought

    def _with_models(
        self, exchange: Exchange, offline: Proposer, grammar: Grammar, screen: Screen
    ) -> Proposer:
        """The proposer that asks models."""
        from akv_rsi.search.llm.proposer import LLMProposer

        tools = ", ".join(grammar.vocabulary.tools)
        about = {"budget": f"{self._config.budget:g}", "tools": tools}
        proposer = LLMProposer(exchange, offline, self.playbook, screen.problem, about)
        self.bandit = proposer.bandit
        return proposer
