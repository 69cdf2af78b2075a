"""The engine's face: requests in, completions out, exact under every cache operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate, count, pairwise

import numpy as np
import torch
from torch import Tensor

from akv_rsi.config import EngineConfig
from akv_rsi.engine.backend import open_backend
from akv_rsi.engine.batch import Batch
from akv_rsi.engine.cache import Cache
from akv_rsi.engine.memory import keep_freed_memory
from akv_rsi.engine.model import Model
from akv_rsi.engine.pool import PagePool
from akv_rsi.engine.request import Completion, EngineStats, Likely, Request, Sampled
from akv_rsi.engine.sampler import likelihoods, sample
from akv_rsi.engine.scheduler import Scheduler
from akv_rsi.engine.sequence import Sequence as Running
from akv_rsi.errors import AkvError, ConfigError, ContextLimit, EngineError, NumericalError, OpError
from akv_rsi.types import OpHistory

Outcome = Completion | AkvError


class Engine:
    """Runs requests on one model with one cache.

    Results depend on the requests and their order only: on a cold cache the same requests give the
    same tokens.
    """

    def __init__(self, model: Model, config: EngineConfig) -> None:
        if config.threads:
            torch.set_num_threads(config.threads)
        keep_freed_memory()
        for wanted, loaded in (
            (config.dtype, model.config.dtype),
            (config.device, model.config.device),
        ):
            if wanted != loaded:
                raise ConfigError(f"the model was loaded as {loaded}, not {wanted}")
        self._model = model
        self._config = config
        shapes = [layer.shape for layer in model.layers]
        dtype = getattr(torch, config.dtype)
        device = torch.device(config.device)
        int8 = config.kv_dtype == "int8"
        self._pool = PagePool(shapes, config.pages, config.page_size, dtype, device, int8)
        self._backend = open_backend(model, config, self._pool)
        self.reset()

    @property
    def positions(self) -> int:
        """The model's positions: no token can be computed at this one."""
        return self._model.max_positions

    @property
    def vocabulary(self) -> int:
        """Token ids lie below this number."""
        return self._model.vocabulary

    def reset(self) -> None:
        """A cold cache: every page is free, nothing runs, the counts start at zero."""
        self._pool.clear()
        self._backend.clear()
        self._cache = Cache(self._pool, self._config)
        self._scheduler = Scheduler(self._model, self._config, self._cache, self._backend)
        self._numbers = count()
        self._stats = EngineStats()

    def submit(self, request: Request) -> int:
        """Queues a request and returns its number.

        Raises `OpError` or `GuardError` for ops the contract forbids, `ContextLimit` for a prompt
        longer than the model's positions, `EngineError` for an unknown token.
        """
        number = next(self._numbers)
        try:
            if request.max_new_tokens < 1:
                raise EngineError("max_new_tokens must be at least 1")
            if request.logprobs is not None and request.logprobs < 0:
                raise EngineError("logprobs must be at least 0")
            sequence = self._sequence(number, request)
        except (OpError, EngineError) as error:
            raise type(error)(f"request {number}: {error}") from None
        self._scheduler.add(sequence)
        return number

    def step(self) -> list[tuple[int, Outcome]]:
        """One forward pass; what it finished, by request number, failures included."""
        outcomes = [self._fail(*refused) for refused in self._scheduler.admit()]
        if not self._scheduler.running:
            return outcomes
        with self._all_or_nothing():
            batch, wanted = self._scheduler.plan()
            if not batch.size:
                return outcomes
            logits = self._backend.forward(batch)
        self._count_pass(batch)
        tokens = sample(logits, [sequence.sampling for sequence in wanted])
        likely = likelihoods(logits, tokens, [one.request.logprobs for one in wanted])
        return outcomes + self._take(wanted, tokens, likely)

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """The completions of ``requests``, in their order.

        All are checked before any is run; all are run, then the first failure among them is raised.
        """
        if self._scheduler.busy:
            raise EngineError("submitted requests are in work: step until they are done")
        numbers: list[int] = []
        try:
            numbers.extend(self.submit(request) for request in requests)
        except AkvError:
            for number in numbers:
                self.cancel(number)
            raise
        outcomes: dict[int, Outcome] = {}
        while len(outcomes) < len(numbers):
            outcomes.update(self.step())
        completions = []
        for number in numbers:
            outcome = outcomes[number]
            if isinstance(outcome, AkvError):
                raise outcome
            completions.append(outcome)
        return completions

    def cancel(self, number: int) -> bool:
        """Forgets a request in whatever state it is; False when it is not in work."""
        for sequence in self._scheduler:
            if sequence.number == number:
                self._scheduler.remove(sequence)
                sequence.release(keep=True)
                return True
        return False

    def outputs(self) -> dict[int, Sampled]:
        """What the requests in work have sampled so far, by number."""
        return {
            one.number: Sampled(one.output, tuple(one.likely))
            for one in self._scheduler
            if one.known > one.prompt
        }

    def finish(self, number: int) -> Completion | None:
        """Ends a request where it stands; None when it has sampled nothing, or is not in work."""
        for sequence in self._scheduler:
            if sequence.number == number and sequence.known > sequence.prompt:
                return self._finish(sequence)
        return None

    def stats(self) -> EngineStats:
        """The counts so far."""
        return replace(
            self._stats,
            evicted_pages=self._cache.tree.evicted_pages,
            dropped_pages=self._cache.dropped_pages,
            turned_pages=self._cache.turned_pages,
            relocated=self._cache.relocated,
            gathered=self._cache.gathered,
            preemptions=self._scheduler.preemptions,
            pages_free=self._pool.free_pages,
        )

    def check(self) -> None:
        """Asserts every invariant of pages, tree and running requests."""
        self._cache.check()

    def logits(self, tokens: Sequence[int], history: OpHistory) -> Tensor:
        """``[n, vocabulary]`` logits of all tokens under ``history``, in one pass, cache unused."""
        return self.forced(tokens, history, ())

    def forced(
        self,
        tokens: Sequence[int],
        history: OpHistory,
        cuts: Sequence[int],
        of: Callable[[Tensor], Tensor] = lambda logits: logits,
    ) -> Tensor:
        """As `logits`, in passes that end after ``cuts`` tokens each; the cache stays as it was.

        A pass of one token with no op before it takes the path that decoding takes. Of each pass's
        logits only what ``of`` makes of them is kept.
        """
        ends = [*cuts, len(tokens)]
        if any(low >= high for low, high in zip([0, *ends], ends, strict=False)):
            raise EngineError(f"cuts {tuple(cuts)} do not ascend within {len(tokens)} tokens")
        request = Request(tokens, history, max_new_tokens=0)
        sequence = self._sequence(next(self._numbers), request, alone=True)
        return self._observe(sequence, ends, keep=False, of=of)

    def scores(self, tokens: Sequence[int], history: OpHistory, cuts: Sequence[int]) -> Tensor:
        """``[n - 1]`` log-probabilities of all tokens but the first, each given those before it.

        In passes as `forced` has them, so that the logits of no more than one pass are held.
        """
        targets, start = torch.as_tensor(tokens), 1

        def likely(logits: Tensor) -> Tensor:
            nonlocal start
            told = targets[start : start + len(logits)].to(logits.device)
            start += len(told)
            return logits[: len(told)].log_softmax(-1).gather(1, told[:, None])[:, 0]

        return self.forced(tokens, history, cuts, likely)

    def next_logits(self, request: Request) -> Tensor:
        """``[vocabulary]`` logits after the prompt, through the cache and into it."""
        sequence = self._sequence(next(self._numbers), request)
        return self._observe(sequence, [sequence.prompt], keep=True, of=lambda rows: rows[-1:])[-1]

    def tails(self, requests: Sequence[Request], count: int) -> list[Tensor]:
        """``[count, vocabulary]`` logits of each prompt's last tokens, all computed in one pass.

        Through the cache and into it. `EngineError` when some of those tokens are cached already:
        then nothing would be computed for them.
        """
        sequences = [self._sequence(next(self._numbers), request) for request in requests]
        lane = Scheduler(self._model, self._config, self._cache, self._backend)
        logits: Tensor | None = None
        try:
            for sequence in sequences:
                if not sequence.admit():
                    raise ContextLimit(f"it needs more than {self._pool.free_pages} free pages")
                lane.advance(sequence)
            batch, complete = lane.plan(whole=True)
            if len(complete) < len(sequences):
                raise ContextLimit(f"{len(sequences)} prompts need more pages than there are")
            ends = list(accumulate(sequence.tally.fresh for sequence in sequences))
            if any(high - low < count for low, high in pairwise([0, *ends])):
                raise EngineError(f"some of the last {count} tokens are cached")
            batch.kept = [batch.kept[row] for end in ends for row in range(end - count, end)]
            logits = self._backend.forward(batch).cpu()
        finally:
            for sequence in sequences:
                lane.remove(sequence)
                sequence.release(keep=logits is not None)
        return [logits[row : row + count] for row in range(0, len(logits), count)]

    def _observe(
        self,
        sequence: Running,
        ends: Sequence[int],
        keep: bool,
        of: Callable[[Tensor], Tensor] = lambda logits: logits,
    ) -> Tensor:
        """Logits of every computed token, in passes that end after ``ends`` tokens."""
        if not sequence.admit():
            raise ContextLimit(
                f"it needs more than the {self._pool.free_pages} pages that are free"
            )
        lane = Scheduler(self._model, self._config, self._cache, self._backend)
        logits: list[Tensor] = []
        try:
            for end in ends:
                sequence.known = end
                lane.advance(sequence)
                batch, _ = lane.plan(whole=True)
                logits.append(of(self._backend.forward(batch)).cpu())
        finally:
            lane.remove(sequence)
            sequence.release(keep and len(logits) == len(ends))
        return torch.cat(logits)

    def _sequence(self, number: int, request: Request, alone: bool = False) -> Running:
        tokens = np.asarray(request.tokens, dtype=np.int64)
        if not len(tokens):
            raise EngineError("an empty prompt")
        if tokens.min() < 0 or tokens.max() >= self._model.vocabulary:
            raise EngineError(f"token ids must lie in [0, {self._model.vocabulary})")
        sequence = Running(number, request, self._cache, alone)
        highest, limit = sequence.timeline.highest_position(len(tokens)), self._model.max_positions
        if highest >= limit:
            raise ContextLimit(f"position {highest} is past the model's {limit} positions")
        return sequence

    def _take(
        self, wanted: list[Running], tokens: list[int | None], likely: list[Likely | None]
    ) -> list[tuple[int, Outcome]]:
        """Gives each sequence its token, and retires those that are done or failed."""
        outcomes: list[tuple[int, Outcome]] = []
        failed = [one for one, token in zip(wanted, tokens, strict=True) if token is None]
        spoilt = [one.lease.pages for one in failed if one.lease is not None]
        for sequence, token, told in zip(wanted, tokens, likely, strict=True):
            if token is None and not sequence.alone:
                # What it shared may be another's fault: it has one more try, by itself.
                self._scheduler.remove(sequence)
                sequence.release(keep=False)
                self._scheduler.add(self._sequence(sequence.number, sequence.request, alone=True))
            elif token is None:
                outcomes.append(self._fail(sequence, NumericalError("logits are not finite")))
            elif (
                sequence.push(token, told)
                or sequence.upcoming_position >= self._model.max_positions
            ):
                outcomes.append((sequence.number, self._finish(sequence)))
            else:
                self._scheduler.advance(sequence)
        for pages in spoilt:
            self._cache.disown(pages)
        return outcomes

    def _finish(self, sequence: Running) -> Completion:
        completion = sequence.completion()
        self._scheduler.close(sequence)
        stats = self._stats
        self._stats = replace(
            stats,
            requests=stats.requests + 1,
            prompt_tokens=stats.prompt_tokens + sequence.prompt,
            cached_tokens=stats.cached_tokens + completion.cached,
            computed_tokens=stats.computed_tokens + sequence.prompt - completion.cached,
            refreshed_tokens=stats.refreshed_tokens + completion.refreshed,
            output_tokens=stats.output_tokens + len(completion.tokens),
            matched_exact=stats.matched_exact + completion.matched_exact,
            matched_retrigger=stats.matched_retrigger + completion.matched_retrigger,
            recovered_tokens=stats.recovered_tokens + completion.recovered,
            restored_tokens=stats.restored_tokens + completion.restored,
        )
        return completion

    def _fail(self, sequence: Running, error: EngineError) -> tuple[int, Outcome]:
        self._scheduler.remove(sequence)
        sequence.release(keep=False)
        return sequence.number, type(error)(f"request {sequence.number}: {error}")

    def _count_pass(self, batch: Batch) -> None:
        stats = self._stats
        self._stats = replace(stats, passes=stats.passes + 1, rows=stats.rows + batch.size)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """A pass that is broken off leaves planned, uncomputed KV behind: start cold then."""
        done = False
        try:
            yield
            done = True
        finally:
            if not done:
                self.reset()
