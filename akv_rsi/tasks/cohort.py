"""A cohort: fixed episodes that advance in lockstep waves on one engine with a cold cache.

Every wave asks the engine once for all calls of all running episodes, in a fixed order, so that
policies and tasks share prefixes and the result does not depend on anything else. Equal requests of
different policies are one request: greedy decoding is a function of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

from akv_rsi.engine.request import Completion, Request
from akv_rsi.errors import ContextLimit, PolicyError, TaskError
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.policies.vocabulary import capabilities_of
from akv_rsi.tasks.bench import Bench, Generates
from akv_rsi.tasks.conversation import Conversation
from akv_rsi.tasks.decide import Choice, Decide, open_decider
from akv_rsi.tasks.directed import Directed
from akv_rsi.tasks.episode import Episode, Measured, TaskRef
from akv_rsi.tasks.play import Play, Played, play
from akv_rsi.tasks.transcript import Transcript


@dataclass(frozen=True, slots=True)
class Totals:
    """What cohorts took, as the engine counted it: tokens, calls, and seconds (``engine_s``).

    ``shared`` prompt tokens belong to calls answered by another policy's equal call; of the others,
    ``cached`` came from the cache and ``computed`` were prefilled.
    """

    episodes: int = 0
    calls: int = 0
    shared_calls: int = 0
    shared: int = 0
    cached: int = 0
    computed: int = 0
    refreshed: int = 0
    output: int = 0
    engine_s: float = field(default=0.0, compare=False)

    def __add__(self, other: Totals) -> Totals:
        names = [f.name for f in fields(Totals)]
        return Totals(**{name: getattr(self, name) + getattr(other, name) for name in names})

    @property
    def cached_share(self) -> float:
        """The share of prompt tokens that did not have to be computed."""
        served = self.shared + self.cached
        return served / (served + self.computed) if served else 0.0


Answer = Completion | ContextLimit


class CohortResult(NamedTuple):
    """``episodes[i][j]`` is policy ``i`` on task ``j``."""

    episodes: list[list[Episode]]
    totals: Totals


def run_cohort(
    bench: Bench,
    specs: Sequence[PolicySpec],
    tasks: Sequence[TaskRef],
    report: Callable[[Episode], None] = lambda _: None,
    keep: bool = False,
) -> CohortResult:
    """Every policy on every task, from a cold cache.

    ``report`` is called with each episode as it ends; ``keep`` adds trajectories and measurements
    to the returned ones. An `EngineError` stops everything.
    """
    bench.agent.engine.reset()
    totals = Totals(episodes=len(specs) * len(tasks))
    running = [_Running(_episode(bench, spec, task, keep)) for spec in specs for task in tasks]
    with ExitStack() as stack:
        deciders = [_open(spec, stack) for spec in specs]

        def advance(episodes: Sequence[_Running], answers: Sequence[Any]) -> None:
            for episode, answer in zip(episodes, answers, strict=True):
                if done := episode.advance(answer):
                    report(replace(done, trajectory=None, measured=()))

        advance(running, [None] * len(running))
        while any(episode.asks is not None for episode in running):
            for i, decide in enumerate(deciders):
                own = running[i * len(tasks) : (i + 1) * len(tasks)]
                deciding = {e: e.asks for e in own if isinstance(e.asks, Choice)}
                advance(list(deciding), decide(list(deciding.values())))
            calling = {e: e.asks for e in running if isinstance(e.asks, Request)}
            completions, counts = _generate(bench.agent.engine, list(calling.values()))
            totals += counts
            advance(list(calling), completions)
    rows = [e.result for e in running if e.result is not None]
    return CohortResult([rows[i : i + len(tasks)] for i in range(0, len(rows), len(tasks))], totals)


@dataclass(slots=True, eq=False)
class _Running:
    """An episode under way: what it ``asks`` for next, or how it ended."""

    coroutine: Generator[Choice | Request, Any, Episode]
    asks: Choice | Request | None = None
    result: Episode | None = None

    def advance(self, answer: Any) -> Episode | None:
        """Answers what it asked (None begins it); returns the episode if that ended it."""
        try:
            self.asks = self.coroutine.send(answer)
        except StopIteration as stop:
            self.asks, self.result = None, stop.value
        return self.result


def _generate(engine: Generates, requests: list[Request]) -> tuple[list[Answer], Totals]:
    """The answer to each request; equal ones are generated once."""
    places: dict[Request, int] = {}
    slots = [places.setdefault(request, len(places)) for request in requests]
    started = perf_counter()
    answers = complete(engine, list(places))
    seconds = perf_counter() - started
    totals = Totals(calls=len(requests), shared_calls=len(requests) - len(places), engine_s=seconds)
    for slot, times in Counter(slots).items():
        if isinstance(answer := answers[slot], Completion):
            totals += Totals(
                shared=(times - 1) * (answer.cached + answer.computed),
                cached=answer.cached,
                computed=answer.computed,
                refreshed=answer.refreshed,
                output=len(answer.tokens),
            )
    return [answers[slot] for slot in slots], totals


def complete(engine: Generates, requests: list[Request]) -> list[Answer]:
    """All requests together. One that outgrows the model is its own episode's failure."""
    outcomes: dict[int, Answer] = {}
    numbers: list[int] = []
    for request in requests:
        try:
            numbers.append(engine.submit(request))
        except ContextLimit as error:
            numbers.append(-1 - len(numbers))
            outcomes[numbers[-1]] = error
    while len(outcomes) < len(numbers):
        for number, outcome in engine.step():
            if not isinstance(outcome, Completion | ContextLimit):
                raise outcome
            outcomes[number] = outcome
    return [outcomes[number] for number in numbers]


def _open(spec: PolicySpec, stack: ExitStack) -> Decide:
    """The decisions of ``spec``; a policy that cannot be opened fails at its first one."""
    try:
        return stack.enter_context(open_decider(spec))
    except PolicyError as error:
        failure = error
        return lambda choices: [failure] * len(choices)


def _episode(
    bench: Bench, spec: PolicySpec, task: TaskRef, keep: bool
) -> Generator[Choice | Request, Any, Episode]:
    """One episode of the cohort."""
    chat = bench.agent.chat
    name = f"{task.suite}/{task.seed}"
    transcript = Transcript(
        name, bench.prices, chat.reliable_span, bench.budget, _reads_attention(spec)
    )
    measured: list[Measured] = []
    script = None
    try:
        script = bench.script(task)
        make = partial(bench.environment, task)
        conversation = Conversation(chat, transcript)
        calls = play(
            conversation,
            (lambda: Directed(make())) if spec.kind == "agent" else make,
            bench.max_turns,
        )
        played = yield from _metered(calls, measured)
    except TaskError as error:
        played = Played(False, "infrastructure", str(error))
    length = transcript.length if script is None else script.segments[-1].end
    return Episode(
        task=task,
        policy=spec.id,
        success=played.success,
        outcome=played.outcome,
        cost=transcript.cost,
        usage=transcript.usage,
        in_span=length <= chat.reliable_span,
        detail=played.detail,
        trajectory=transcript.trajectory(spec.name) if keep else None,
        measured=tuple(measured) if keep else (),
    )


def _reads_attention(spec: PolicySpec) -> bool:
    try:
        return "attention" in capabilities_of(spec.source)
    except PolicyError:  # its first decision tells why
        return False


def _metered(calls: Play, measured: list[Measured]) -> Play:
    """``calls``, noting what the engine measured of each."""
    answer: Any = None
    while True:
        try:
            asked = calls.send(answer)
        except StopIteration as stop:
            played: Played = stop.value
            return played
        answer = yield asked
        if isinstance(asked, Request) and isinstance(answer, Completion):
            measured.append(_measured(asked, answer))


def _measured(request: Request, completion: Completion) -> Measured:
    return Measured(
        prompt=len(request.tokens),
        cached=completion.cached,
        prefilled=completion.computed,
        refreshed=completion.refreshed,
        attended=completion.attended,
        output=len(completion.tokens),
        ttft=completion.ttft,
        itl=completion.itl,
    )
