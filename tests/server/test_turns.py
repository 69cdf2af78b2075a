"""Who prepares when: in order, one at a time, and a long one lets others go first between steps."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from serving import service, turns, wait_until

from akv_rsi.policies import library
from akv_rsi.server.turns import Turns
from akv_rsi.server.wire import ChatRequest
from akv_rsi.visibility import Visibility


def test_a_long_one_hands_on_after_its_steps_and_comes_back_in_order() -> None:
    queue, log = Turns(steps=2), list[str]()

    def short(name: str) -> None:
        with queue.taken():
            log.append(name)

    others = [threading.Thread(target=short, args=(name,)) for name in ("b", "c")]
    with queue.taken():
        for number in range(5):
            log.append(f"a{number}")
            if number < 2:
                others[number].start()
                wait_until(lambda want=number + 1: queue.waiting == want)
            queue.step()
    for other in others:
        other.join()
    assert log == ["a0", "a1", "b", "c", "a2", "a3", "a4"]


def test_nobody_is_let_in_between_two_steps_without_need() -> None:
    queue, inside = Turns(steps=1), list[int]()

    def work() -> None:
        for _ in range(20):
            with queue.taken():
                inside.append(1)
                assert len(inside) == 1
                inside.pop()
                queue.step()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert queue.waiting == 0
    queue.step()  # of one who has not taken it: nothing happens
    with queue.taken():
        pass


def test_a_new_long_conversation_does_not_hold_up_a_short_one() -> None:
    """Both come out as they do alone, plan and all."""
    made = service(policy=library.spec("rolling_drop", keep=1))
    long, short = (
        ChatRequest.model_validate({"messages": turns(count), "temperature": 0, "seed": 1})
        for count in (150, 1)
    )
    done = list[str]()
    begun, queued = threading.Event(), threading.Event()

    def first() -> Any:
        begun.set()
        assert queued.wait(60)
        job = made.jobs.chat(long, "")
        done.append("long")
        return job

    def second() -> Any:
        job = made.jobs.chat(short, "")
        done.append("short")
        return job

    async def both() -> list[Any]:
        earlier = asyncio.create_task(made.prepare(first))
        await asyncio.to_thread(begun.wait, 60)
        later = asyncio.create_task(made.prepare(second))
        await asyncio.to_thread(wait_until, lambda: made.turns.waiting == 1)
        queued.set()
        return [await earlier, await later]

    made.start()
    try:
        jobs = asyncio.run(both())
    finally:
        made.close()
    assert done == ["short", "long"]
    alone = service(policy=library.spec("rolling_drop", keep=1))
    for job, asked in zip(jobs, (long, short), strict=True):
        assert job.request == alone.jobs.chat(asked, "").request
        state = Visibility.replay(len(job.request.tokens), job.request.history)
        assert (job.state.runs, job.state.epoch) == (state.runs, state.epoch)
    alone.start()
    alone.close()
