"""One answer in the making: events of the engine in, text out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Literal, NamedTuple

from akv_rsi.engine.request import Completion, Sampled
from akv_rsi.errors import AkvError
from akv_rsi.server.jobs import Job
from akv_rsi.server.likelihood import Entries, Entry
from akv_rsi.server.reader import Reader
from akv_rsi.server.runner import Runner
from akv_rsi.tasks.template import ChatTemplate

Finish = Literal["stop", "length", "tool_calls"]


class Piece(NamedTuple):
    """Text to show, and its tokens if the request asked how likely they were."""

    text: str
    entries: Sequence[Entry] = ()


class Generation:
    """An answer; read `deltas` to the end, then ``completion`` and ``text`` are there.

    ``rest`` are then the tokens of what was held back, if the request asked how likely they were.

    Leaving `deltas` early, by whatever way, cancels the request in the engine.
    """

    def __init__(
        self,
        runner: Runner,
        job: Job,
        template: ChatTemplate,
        hold: Sequence[str] = (),
    ) -> None:
        self.job = job
        self.completion: Completion | None = None
        self.rest: Sequence[Entry] = ()
        self._runner = runner
        self._decode = template.decode
        self._reader = Reader(self._decode, job.request.stop, job.stops, hold)
        self._entries = Entries(self._decode, template.name, job.request.stop)

    @property
    def text(self) -> str:
        """The text so far, all of it."""
        return self._reader.text

    @property
    def held(self) -> str:
        """The part of the text that was not shown piece by piece."""
        return self._reader.held

    @property
    def entries(self) -> Sequence[Entry] | None:
        """All tokens of the text; None when the request did not ask how likely they were."""
        return None if self.job.request.logprobs is None else self._entries.given

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

    async def deltas(self) -> AsyncGenerator[Piece, None]:
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
                if text := self._push(event):
                    yield self._piece(text)
                if self._reader.stopped and not ending:
                    ending = True
                    self._runner.finish(ticket)
        finally:
            self._runner.cancel(ticket)
        last = self._push(Sampled(event.tokens, event.likely).since(ticket.sent))
        if text := last + self._reader.close():
            yield self._piece(text)
        self.rest = self._entries.before(len(self.text))

    def _push(self, sampled: Sampled) -> str:
        self._entries.push(sampled)
        return self._reader.push(sampled.tokens)

    def _piece(self, text: str) -> Piece:
        return Piece(text, self._entries.before(self._reader.shown))
