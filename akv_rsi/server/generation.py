"""One answer in the making: events of the engine in, text out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Literal

from akv_rsi.engine.request import Completion
from akv_rsi.errors import AkvError
from akv_rsi.server.jobs import Job
from akv_rsi.server.reader import Reader
from akv_rsi.server.runner import Runner

Finish = Literal["stop", "length", "tool_calls"]


class Generation:
    """An answer; read `deltas` to the end, then ``completion`` and ``text`` are there.

    Leaving `deltas` early, by whatever way, cancels the request in the engine.
    """

    def __init__(
        self,
        runner: Runner,
        job: Job,
        decode: Callable[[Sequence[int]], str],
        hold: Sequence[str] = (),
    ) -> None:
        self.job = job
        self.completion: Completion | None = None
        self._runner = runner
        self._decode = decode
        self._reader = Reader(decode, job.request.stop, job.stops, hold)

    @property
    def text(self) -> str:
        """The text so far, all of it."""
        return self._reader.text

    @property
    def held(self) -> str:
        """The part of the text that was not shown piece by piece."""
        return self._reader.held

    @property
    def finish(self) -> Finish:
        """Why the answer ended."""
        assert self.completion is not None, "deltas are read to the end first"
        return "stop" if self._reader.stopped else self.completion.finish

    @property
    def faithful(self) -> tuple[int, ...] | None:
        """The sampled tokens that say exactly the text; None where a stop string cut it."""
        tokens = tuple(self._reader.tokens)
        return tokens if self._decode(tokens) == self.text else None

    async def deltas(self) -> AsyncGenerator[str, None]:
        """The text, piece by piece; `AkvError` when the engine cannot go on."""
        ticket, ending = self._runner.submit(self.job.request), False
        try:
            while True:
                event = await ticket.events.get()
                if isinstance(event, AkvError):
                    raise event
                if isinstance(event, Completion):
                    self.completion = event
                    break
                if text := self._reader.push(event):
                    yield text
                if self._reader.stopped and not ending:
                    ending = True
                    self._runner.finish(ticket)
        finally:
            self._runner.cancel(ticket)
        if text := self._reader.push(event.tokens[ticket.sent :]) + self._reader.close():
            yield text
