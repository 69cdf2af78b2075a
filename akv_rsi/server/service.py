"""What the routes share: the engine's thread, the threads that prepare jobs, and the records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import TypeVar

from akv_rsi.engine.engine import Engine
from akv_rsi.server.answers import Answer
from akv_rsi.server.generation import Generation, Piece
from akv_rsi.server.jobs import Job, Jobs
from akv_rsi.server.limits import ServerConfig
from akv_rsi.server.metrics import Metrics
from akv_rsi.server.planner import Planner
from akv_rsi.server.refusal import Refusal
from akv_rsi.server.runner import Runner
from akv_rsi.server.sessions import Session, Sessions
from akv_rsi.server.tenants import Gate, Tenants
from akv_rsi.server.turns import Turns
from akv_rsi.tasks.template import ChatTemplate

T = TypeVar("T")


class Service:
    """One model, served. `start` it and `close` it, once each."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        template: ChatTemplate,
        config: ServerConfig,
        tenants: Tenants,
        planner: Planner | None = None,
    ) -> None:
        self.name = name
        self.config = config
        self.tenants = tenants
        self.runner = Runner(engine)
        self.jobs = Jobs(template, engine.positions, engine.vocabulary, config, tenants, planner)
        self.sessions = Sessions(config.kept_sessions, config.kept_session_tokens)
        self.gate = Gate(tenants, config.max_in_work)
        self._template = template
        self.metrics = Metrics(lambda: self.runner.stats, self._gauges())
        self.turns = Turns()
        template.pause = self.turns.step
        if planner is not None:
            planner.pause = self.turns.step
        self._preparing = ThreadPoolExecutor(config.max_in_work, thread_name_prefix="prepare")

    def start(self) -> None:
        """Starts the engine's thread."""
        self.runner.start()

    def close(self) -> None:
        """Ends the threads and the policy's sandbox; what is in work gets an error."""
        self.runner.close()
        self._preparing.shutdown(cancel_futures=True)
        if self.jobs.planner is not None:
            self.jobs.planner.close()

    async def prepare(self, make: Callable[[], T]) -> T:
        """What ``make`` returns, made where jobs are made: in its turn."""

        def made() -> T:
            with self.turns.taken():
                return make()

        return await asyncio.get_running_loop().run_in_executor(self._preparing, made)

    def generation(self, job: Job, hold: Sequence[str] = ()) -> Generation:
        """The answer to a job, not begun."""
        self.metrics.asked(type(op).__name__.lower() for op in job.request.history)
        if job.plan is not None and job.plan.error is not None:
            self.metrics.failed_policy()
        return Generation(self.runner, job, self._template, hold)

    async def answer(self, generation: Generation) -> AsyncGenerator[Piece, None]:
        """The answer's text, piece by piece; at its end it is on record."""
        async with aclosing(generation.deltas()) as deltas:
            async for piece in deltas:
                yield piece
        self._record(generation)

    def model(self, asked: str | None) -> None:
        """Raises `Refusal` (404) for another model than this one."""
        if asked is not None and asked != self.name:
            raise Refusal(404, f"there is no model {asked!r}: use {self.name!r}", "model_not_found")

    def _record(self, generation: Generation) -> None:
        job, completion = generation.job, generation.completion
        assert completion is not None
        usage = job.usage(completion)
        self.metrics.completed(completion, usage["prompt_tokens_details"])
        if job.prompt is None or job.session is None:
            return
        tenant = job.request.tenant
        if (tokens := generation.faithful) is not None:
            self.jobs.answers.keep(tenant, job.request.tokens, Answer(generation.text, tokens))
        self.sessions.put(
            job.session, Session(tenant, job.prompt, job.request.history, job.plan, usage)
        )

    def _gauges(self) -> dict[str, tuple[str, Callable[[], float]]]:
        answers = self.jobs.answers
        return {
            "requests_in_work": ("requests that run or wait", lambda: self.gate.inside),
            "engine_in_work": ("requests the engine has", lambda: self.runner.in_work),
            "answers_spliced": (
                "answers that came back and go on from their sampled tokens",
                lambda: answers.spliced,
            ),
            "answers_forked": (
                "answers that came back with another text",
                lambda: answers.forked,
            ),
        }
