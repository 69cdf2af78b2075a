"""One engine, one thread that steps it, any number of clients that wait.

Everything that touches the engine happens in its thread, between two passes: the other threads put
jobs into an inbox. What the engine samples comes back as events of a `Ticket`, in the event loop of
whoever submitted the request.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue

from akv_rsi.engine.engine import Engine
from akv_rsi.engine.request import Completion, EngineStats, Request, Sampled
from akv_rsi.errors import AkvError, EngineError
from akv_rsi.server.refusal import Refusal

# Newly sampled tokens, the completion of all of them, or why there is none.
Event = Sampled | Completion | AkvError


class Ticket:
    """A submitted request, from outside the engine's thread: its events, in order.

    A `Completion` or an error is the last one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.number: int | None = None
        self.sent = 0
        self._loop = loop

    def tell(self, event: Event) -> None:
        """Called by the engine's thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.events.put_nowait, event)


class Runner:
    """Owns the engine's thread; `start` it, and `close` it to give up what is in work.

    ``failed`` says why the engine is broken, if it is: then nothing is accepted any more.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._tickets: dict[int, Ticket] = {}
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self.failed: str | None = None
        self.stats: EngineStats = engine.stats()

    @property
    def in_work(self) -> int:
        """Requests the engine has taken and not finished."""
        return len(self._tickets)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread after the pass it is in; what is unfinished gets an error."""
        self._inbox.put(self._stop)
        self._thread.join()

    def submit(self, request: Request) -> Ticket:
        """Queues a request; called in the event loop that will read its ticket."""
        ticket = Ticket(asyncio.get_running_loop())
        if self.failed is not None:
            raise EngineError(self.failed)
        self._inbox.put(lambda: self._submit(ticket, request))
        return ticket

    def finish(self, ticket: Ticket) -> None:
        """Ends a request where it stands: its completion follows. No-op once it is done."""
        self._inbox.put(lambda: self._finish(ticket))

    def cancel(self, ticket: Ticket) -> None:
        """Forgets a request; nothing follows. No-op once it is done."""
        self._inbox.put(lambda: self._cancel(ticket))

    async def check(self) -> str | None:
        """Which of its invariants the engine finds broken, between two passes; None if none is."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[str | None] = loop.create_future()

        def look() -> None:
            loop.call_soon_threadsafe(found.set_result, self._broken())

        self._inbox.put(look)
        return await found

    def _run(self) -> None:
        while not self._closing:
            self._work_off()
            if self._tickets and not self._closing:
                self._step()

    def _work_off(self) -> None:
        """Does what is in the inbox; waits for something when there is nothing else to do."""
        while (not self._tickets and not self._closing) or not self._inbox.empty():
            self._inbox.get()()

    def _step(self) -> None:
        try:
            outcomes = self._engine.step()
            outputs = self._engine.outputs()
        except Exception as error:  # noqa: BLE001  # the thread's boundary: all must be told
            self._fail(error)
            return
        self.stats = self._engine.stats()  # before the answers go out, so that it counts them
        for number, sampled in outputs.items():
            ticket = self._tickets[number]
            if len(sampled.tokens) > ticket.sent:
                ticket.tell(sampled.since(ticket.sent))
                ticket.sent = len(sampled.tokens)
        for number, outcome in outcomes:
            self._tickets.pop(number).tell(outcome)

    def _submit(self, ticket: Ticket, request: Request) -> None:
        try:
            ticket.number = self._engine.submit(request)
        except AkvError as error:
            ticket.tell(error)
            return
        except Exception as error:  # noqa: BLE001  # the thread's boundary: all must be told
            ticket.tell(self._fail(error))
            return
        self._tickets[ticket.number] = ticket

    def _finish(self, ticket: Ticket) -> None:
        if ticket.number in self._tickets:
            completion = self._engine.finish(ticket.number)
            if completion is not None:
                self._tickets.pop(ticket.number).tell(completion)

    def _cancel(self, ticket: Ticket) -> None:
        if ticket.number is not None and self._tickets.pop(ticket.number, None) is not None:
            self._engine.cancel(ticket.number)

    def _stop(self) -> None:
        self._closing = True
        for ticket in self._tickets.values():
            ticket.tell(Refusal(503, "the server is shutting down: send the request again"))
            if ticket.number is not None:
                self._engine.cancel(ticket.number)
        self._tickets.clear()

    def _fail(self, error: Exception) -> EngineError:
        """Gives up: the engine's state is unknown. What everyone in work is told."""
        self.failed = f"the engine failed: {type(error).__name__}: {error}"
        told = EngineError(self.failed)
        tickets, self._tickets = list(self._tickets.values()), {}
        for ticket in tickets:
            ticket.tell(told)
        return told

    def _broken(self) -> str | None:
        try:
            self._engine.check()
        except AssertionError as error:
            return f"the engine's accounts do not balance: {error}"
        return None
