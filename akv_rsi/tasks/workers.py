"""Worker processes for jobs that need something heavy built once per process, such as an engine.

Jobs are callables ``job(state, report)``. Results come back in the order of the jobs, whichever
worker ran them. A job's exception is raised here. A worker that dies is replaced and its job run
again, once. Workers leave Ctrl-C to the parent and end when the parent does, however it ends.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from time import monotonic
from typing import Any, Generic, TypeVar

from akv_rsi.errors import EngineError

S = TypeVar("S")
Report = Callable[[Any], None]
# Work for one worker. It must pickle, as must what it reports and returns.
Job = Callable[[S, Report], Any]

_ATTEMPTS = 2
_GRACE_S = 1.0


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    pipe: Connection
    job: int | None = None


@dataclass(slots=True)
class _Progress:
    """What came of a job so far. ``reports`` were passed on: a second attempt repeats them."""

    attempts: int = 0
    reports: int = 0
    skip: int = 0
    done: bool = False
    result: Any = None
    error: BaseException | None = None


@dataclass(slots=True)
class WorkerPool(Generic[S]):
    """``count`` processes, each with its own ``setup()``; 0 runs jobs in this process.

    ``setup`` must pickle. Use as a context manager, or call `close`.
    """

    setup: Callable[[], S]
    count: int = 0
    _workers: list[_Worker] = field(default_factory=list)
    _local: S | None = None

    def __enter__(self) -> WorkerPool[S]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def map(self, jobs: Sequence[Job[S]], report: Report = lambda _: None) -> list[Any]:
        """The result of each job. Reports come while they run; a job's come in its own order.

        All jobs are run; then the first failure among them is raised. The workers live on.
        """
        if self.count == 0:
            if self._local is None:
                self._local = self.setup()
            return [job(self._local, report) for job in jobs]
        try:
            progress = self._map(jobs, report)
        except BaseException:
            # What is still running belongs to a call that was broken off: the next starts afresh.
            self.close()
            raise
        for finished in progress:
            if finished.error is not None:
                raise finished.error
        return [finished.result for finished in progress]

    def close(self) -> None:
        """Ends the workers. The pool can be used again: it then starts new ones."""
        for worker in self._workers:
            worker.pipe.close()  # an idle worker ends by itself then
        processes = [worker.process for worker in self._workers]
        for end in (None, BaseProcess.terminate, BaseProcess.kill):
            alive = [process for process in processes if process.is_alive()]
            for process in alive:
                if end is not None:
                    end(process)
            deadline = monotonic() + _GRACE_S
            for process in alive:
                process.join(max(0.0, deadline - monotonic()))
        self._workers.clear()
        self._local = None

    def _map(self, jobs: Sequence[Job[S]], report: Report) -> list[_Progress]:
        progress = [_Progress() for _ in jobs]
        todo = list(range(len(jobs)))
        while len(self._workers) < min(self.count, len(jobs)):
            self._workers.append(_start(self.setup))
        while not all(p.done for p in progress):
            for worker in self._workers:
                if worker.job is None and todo:
                    self._assign(worker, todo.pop(0), jobs, progress)
            busy = {worker.pipe: worker for worker in self._workers if worker.job is not None}
            for pipe in wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]  # only pipes were given
                if not _receive(worker, progress, report):
                    todo.insert(0, self._replace(worker, progress))
        return progress

    def _assign(
        self, worker: _Worker, job: int, jobs: Sequence[Job[S]], progress: list[_Progress]
    ) -> None:
        worker.job = job
        progress[job].attempts += 1
        progress[job].skip = progress[job].reports
        with suppress(OSError):  # it died while idle: the next wait finds its pipe closed
            worker.pipe.send(jobs[job])

    def _replace(self, worker: _Worker, progress: list[_Progress]) -> int:
        """Starts another worker for one that died; returns the job to run again."""
        job = worker.job
        assert job is not None
        worker.pipe.close()
        worker.process.join()
        if progress[job].attempts >= _ATTEMPTS:
            raise EngineError(
                f"an evaluation worker died {_ATTEMPTS} times on the same tasks "
                f"(exit code {worker.process.exitcode}): is there enough memory?"
            )
        self._workers[self._workers.index(worker)] = _start(self.setup)
        return job


def _receive(worker: _Worker, progress: list[_Progress], report: Report) -> bool:
    """Takes one message of a busy worker; False when it has died."""
    assert worker.job is not None
    mine = progress[worker.job]
    try:
        kind, value = worker.pipe.recv()
    except (EOFError, OSError):
        return False
    if kind == "error":
        mine.done, mine.error, worker.job = True, value, None
    elif kind == "result":
        mine.done, mine.result, worker.job = True, value, None
    elif mine.skip:
        mine.skip -= 1
    else:
        mine.reports += 1
        report(value)
    return True


def _start(setup: Callable[[], Any]) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, setup), daemon=True)
    with _interrupts_held():
        process.start()
    theirs.close()
    return _Worker(process, ours)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Processes started meanwhile never see Ctrl-C: they inherit the mask."""
    resource_tracker.ensure_running()  # left to itself it starts with the first, and unmasks
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(pipe: Connection, setup: Callable[[], Any]) -> None:
    """The life of a worker: jobs in, reports and results out, until the pipe closes."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # clean up what libraries left open
    state: Any = None
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        try:
            if state is None:
                state = setup()
            answer = ("result", job(state, lambda value: pipe.send(("report", value))))
        except BrokenPipeError:
            return
        except Exception as error:  # noqa: BLE001  # it crosses to the parent, which raises it
            error.add_note("in a worker process:\n" + traceback.format_exc())
            answer = ("error", error)
        with suppress(BrokenPipeError):  # the call was broken off meanwhile
            pipe.send(answer)


def _end_with_parent() -> None:
    """A killed parent cannot close the pipe of a worker that is deep in a forward pass."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
