"""The stages of a search, one method each; `loop.run` says in which order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from akv_rsi.errors import ConfigError, TaskError
from akv_rsi.policies import library
from akv_rsi.policies.parity import ParityProof
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.policies.tunables import freeze
from akv_rsi.search.accept import Judgement, PairedGate, check_gate
from akv_rsi.search.allowance import Allowance
from akv_rsi.search.arm import EXPLAINED, Arm
from akv_rsi.search.candidate import Candidate, score
from akv_rsi.search.choice import Choice, Finalist, keep_everything, rank
from akv_rsi.search.config import ARMS, BASELINES, SAMPLES, SEARCH, SearchConfig
from akv_rsi.search.critique import critique
from akv_rsi.search.evaluation import Evaluates, Evaluation, Rows, Sealed, evaluate
from akv_rsi.search.journal import Journal, Outcome
from akv_rsi.search.progress import Progress
from akv_rsi.search.race import Heat, Race, Runner
from akv_rsi.search.screen import MARGIN, Screen
from akv_rsi.search.team import Team
from akv_rsi.search.watch import Watcher
from akv_rsi.tasks.episode import Episode, Split, TaskRef
from akv_rsi.tasks.suites import task_refs
from akv_rsi.types import Trajectory

# Nothing costs less on a given action sequence: it tells which budgets can be met at all.
CHEAPEST = """from akv_rsi.policies.dsl import Context, drop


def policy(ctx: Context) -> None:
    for seg in ctx.segments:
        if seg.age > 0 and not seg.pinned and not seg.dropped:
            drop(seg)
"""


class Search:
    """The state of one search, and its steps."""

    def __init__(
        self, config: SearchConfig, evaluator: Evaluates, journal: Journal, watcher: Watcher
    ) -> None:
        self.config = config
        self.journal = journal
        self.watcher = watcher
        self.evaluator = evaluator
        self.arms: dict[str, Arm] = {}
        self.keep = keep_everything()
        self.allowance = Allowance(config, journal)
        self.team = Team(config, journal, watcher)
        self.progress = Progress()
        self._records: dict[str, list[Evaluation]] = {}
        self.full: dict[Split, tuple[Episode, ...]] = {}  # what keeping everything did
        self.aa_check: Judgement | None = None

    def tasks(self, split: Split) -> list[TaskRef]:
        """The tasks of a split."""
        counts = {"train": self.config.train, "validation": self.config.validation}
        return task_refs(self.config.suites, split, counts.get(split, self.config.test))

    def refer(self) -> None:
        """Keep-everything on the train tasks, and the A/A check; then the arms.

        Models that propose are met before: one that does not answer costs no episodes.
        """
        self.team.meet()
        tasks = self.tasks("train")
        self.watcher.begin("reference", len(tasks))
        reference = self._run([self.keep], tasks, keep=True)
        self.full["train"] = reference.rows[self.keep.id]
        if bad := next((e for e in self.full["train"] if e.outcome != "done"), None):
            raise TaskError(f"keeping everything cannot be evaluated on {bad.task}: {bad.detail}")
        few = tasks[: self.config.rungs[0]]
        again = self._run([self.keep], few).rows[self.keep.id]
        self.aa_check = check_gate(PairedGate(), again, self.full["train"][: len(few)])
        first = self.config.recordings
        every = self._recordings(tasks[: first + self.config.reviews], reference)
        recordings, more = every[:first], every[first:]
        self._screen = screen = Screen(
            self.evaluator, recordings, more, self.keep, self.config.target
        )
        self._check_reachable(recordings)
        for name, proposer in self.team.proposers(recordings, screen).items():
            drawn = 1 if name == BASELINES else self.config.overdraw
            race = self._new_race()
            self.arms[name] = Arm(
                name, proposer, screen, race, self.config, drawn, combines=name == SEARCH
            )
        if self.config.evidence and SEARCH in self.arms:
            self._records[self.keep.id] = [reference]
            self._explain(self.arms[SEARCH], Candidate(self.keep, "seed"))
        self.watcher.begin("search", len(self.arms) * self.config.episodes)

    def ask(self) -> dict[Heat, list[Arm]]:
        """The next round's heats of all arms, and who asked for each. Empty when all are done."""
        heats: dict[Heat, list[Arm]] = {}
        while not heats:
            finished = all(arm.done for arm in self.arms.values())
            for arm in self.arms.values():
                for heat in arm.ask(self.journal):
                    heats.setdefault(heat, []).append(arm)
            if finished:
                break
        for heat in heats:
            self._write(heat.candidate.spec)
        return heats

    def pays_for(self, heats: dict[Heat, list[Arm]]) -> bool:
        """Whether the run's limits allow this round and then the end."""
        if reason := self.allowance.refusal(sum(heat.episodes for heat in heats)):
            self.watcher.say(f"no further round: {reason}")
        return not reason

    def race(self, heats: dict[Heat, list[Arm]]) -> None:
        """Runs the heats: those on the same tasks as one cohort, whoever asked for them."""
        ordered = sorted(heats, key=lambda heat: (heat.start, heat.end))
        for (start, end), group in groupby(ordered, key=lambda heat: (heat.start, heat.end)):
            together = list(group)
            tasks = self.tasks("train")[start:end]
            specs = [heat.candidate.spec for heat in together]
            evaluation = self._run(specs, tasks, keep=self.config.evidence)
            for heat in together:
                self._records.setdefault(heat.candidate.id, []).append(evaluation)
                for arm in heats[heat]:
                    arm.tell(heat, evaluation.rows[heat.candidate.id])
        for arm in self.arms.values():
            self._announce(arm)

    def criticise(self) -> None:
        """Finds out why the search's most promising candidates fail where they do."""
        arm = self.arms.get(SEARCH) if self.config.evidence else None
        if arm is not None and (candidate := arm.puzzle()) is not None:
            self._explain(arm, candidate)

    def look(self, specs: Sequence[PolicySpec]) -> Rows:
        """Policies and keep-everything on the validation tasks, on nobody's account."""
        return self._run([self.keep, *specs], self.tasks("validation")).rows

    def validate(self) -> dict[str, list[Finalist]]:
        """The finalists of every arm on the validation tasks, as one cohort."""
        runners = {
            name: self._alike(arm.finalists(self.journal)) for name, arm in self.arms.items()
        }
        specs = [self.keep, *(r.candidate.spec for found in runners.values() for r in found)]
        for spec in specs[1:]:
            self._write(spec)
        tasks = self.tasks("validation")
        self.watcher.begin("validation", len({spec.id for spec in specs}) * len(tasks))
        rows = self._run(specs, tasks, keep=True).rows
        self.full["validation"] = rows[self.keep.id]
        for name, arm in self.arms.items():
            arm.settle_final(len(runners[name]) * len(tasks))
        return {
            name: [self._finalist(r, rows[r.candidate.id]) for r in found if _clean(rows, r)]
            for name, found in runners.items()
        }

    def choose(self, finalists: dict[str, list[Finalist]]) -> Choice:
        """The best validation accuracy within the budget of each arm; ties go to the cheaper."""
        ranked = {name: rank(finalists.get(name, []), self.config.budget) for name in ARMS}
        best = ranked[SEARCH] or ranked[SAMPLES] or ranked[BASELINES]
        if not best:
            raise TaskError("no candidate could be evaluated; see the run's events for the reasons")
        sample = ranked[SAMPLES][0] if ranked[SAMPLES] else None
        return Choice(best[0], sample, self._baselines(ranked[BASELINES]))

    def test(self, choice: Choice) -> Sealed:
        """The sealed test, once. Each policy is a cohort of its own, so `eval` can repeat it."""
        names = [spec.id for spec in choice.specs]
        self.journal.perform("unseal", "-".join(names), lambda: Outcome({"policies": names}))
        tasks = self.tasks("test")
        self.watcher.begin("sealed test", len(names) * len(tasks))
        rows: Rows = {}
        for spec in choice.specs:
            rows |= self._run([spec], tasks, keep=True).rows
        fixed = self.journal.perform("fixed", "test", lambda: self._on_scripts(choice.specs, tasks))
        return Sealed(rows, fixed.body)

    def _baselines(self, ranked: Sequence[Finalist]) -> tuple[PolicySpec, ...]:
        """The two best on validation; in full, every hand-written policy in its best numbers."""
        best = [finalist.candidate.spec for finalist in ranked]
        if not self.config.full:
            return tuple(best[:2])
        arm = self.arms.get(BASELINES)
        raced = arm.race.finalists(len(library.names())) if arm is not None else []
        untuned = [library.spec(name) for name in library.names()]
        chosen = {self.keep.name: self.keep}
        for spec in (*best, *(runner.candidate.spec for runner in raced), *untuned):
            chosen.setdefault(spec.name, spec)
        return tuple(chosen.values())[1:]

    def _on_scripts(self, specs: Sequence[PolicySpec], tasks: list[TaskRef]) -> Outcome:
        scripts = [script for script in self.evaluator.scripts(tasks) if script is not None]
        replays = {spec.id: self.evaluator.replay_cost(spec, scripts) for spec in specs}
        return Outcome({id_: sum(one.cost for one in row) for id_, row in replays.items()})

    def _explain(self, arm: Arm, candidate: Candidate) -> None:
        """Evidence on some episodes of a candidate, some of its failures first."""
        episodes = [e for record in self._records[candidate.id] for e in record.full(candidate.id)]
        failed = [episode for episode in episodes if not episode.success][:EXPLAINED]
        others = [episode for episode in episodes if episode.success]
        chosen = [*failed, *others[: self.config.recordings - len(failed)]]
        event = self.journal.perform(
            "evidence", candidate.id, lambda: Outcome(critique(self.evaluator, chosen))
        )
        calls = sum(episode.usage.calls for episode in chosen) / len(chosen)
        arm.learn(candidate, event.body, calls, self.journal)

    def _alike(self, runners: list[Runner]) -> list[Runner]:
        """Those that decide in the sandbox as in plain Python: only they may be exported."""
        proofs = {r.candidate.id: self._prove(r.candidate) for r in runners}
        return [r for r in runners if proofs[r.candidate.id] is not None]

    def _prove(self, candidate: Candidate) -> ParityProof | None:
        def replay() -> Outcome:
            proof = self._screen.prove(candidate)
            return Outcome(proof and {"decisions": proof.decisions, "digest": proof.digest})

        body = self.journal.perform("parity", candidate.id, replay).body
        return None if body is None else ParityProof(**body)

    def _run(
        self, specs: Sequence[PolicySpec], tasks: list[TaskRef], keep: bool = False
    ) -> Evaluation:
        recalled = self.journal.replaying
        evaluation = evaluate(self.journal, self.evaluator, specs, tasks, keep)
        self.allowance.spend(len(evaluation.rows) * len(tasks))
        if recalled:
            self.watcher.advance(len(evaluation.rows) * len(tasks))
        return evaluation

    def _recordings(self, tasks: list[TaskRef], reference: Evaluation) -> list[Trajectory]:
        """What candidates are screened on: the experts' trajectories, else the agent's own."""
        scripts = self.evaluator.scripts(tasks)
        own = reference.trajectories()[self.keep.id]
        return [script or recorded for script, recorded in zip(scripts, own, strict=False)]

    def _check_reachable(self, recordings: Sequence[Trajectory]) -> None:
        specs = (PolicySpec("cheapest", source=CHEAPEST), self.keep)
        outcomes = [self.evaluator.replay_cost(spec, recordings) for spec in specs]
        least, full = (sum(r.cost - r.refetched for r in outcome) for outcome in outcomes)
        if least > full * self.config.target * (1 + MARGIN):
            raise ConfigError(
                f"budget {self.config.budget:g} is out of reach: dropping everything at once still "
                f"costs {least / full:.2f} of keeping it on these tasks"
            )

    def _new_race(self) -> Race:
        config, full = self.config, self.full["train"]
        prices, gate = self.evaluator.prices, PairedGate()
        return Race(config.rungs, config.eta, config.target, full, prices, gate)

    def _finalist(self, runner: Runner, row: tuple[Episode, ...]) -> Finalist:
        prices, done = self.evaluator.prices, len(runner.episodes)
        full = [*self.full["train"][:done], *self.full["validation"]]
        both = score([*runner.episodes, *row], full, prices)
        validation = score(row, self.full["validation"], prices)
        return Finalist(runner, row, validation, both)

    def _announce(self, arm: Arm) -> None:
        found = self.progress.note(arm.name, arm.round, arm.ledger.spent.episodes, arm.leaders())
        if found is not None:
            lesson = f" (lesson: {found.lesson})" if found.lesson else ""
            self.watcher.say(
                f"{arm.name}, generation {found.round}: {found.id} by {found.operator}{lesson}: "
                f"accuracy {found.accuracy:.3f} at {found.cost_ratio:.3f} of the cost "
                f"({found.n} tasks)"
            )

    def _write(self, spec: PolicySpec) -> None:
        if spec.kind == "program":
            values = dict(spec.tunables)
            self.journal.store.write_policy(spec.id, freeze(spec.source, values))


def _clean(rows: Rows, runner: Runner) -> bool:
    return all(episode.outcome == "done" for episode in rows[runner.candidate.id])
