"""An edited policy on a few tasks beside the original, evaluated by a process of its own.

The process is `akv-rsi eval`: what looks at a run needs neither torch nor the engine.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from akv_rsi.errors import TaskError
from akv_rsi.insight.run import Run
from akv_rsi.tasks.episode import Split
from akv_rsi.tasks.stats import Comparison, Interval, accuracy, compare, ratio

EVAL = (sys.executable, "-c", "from akv_rsi.cli import main; main()", "eval")
_PROGRESS = re.compile(r"^episodes (\d+)/(\d+)$")

Told = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Contender:
    """How one of the policies did: solved tasks, and its cost as a share of keeping everything."""

    name: str
    accuracy: Interval
    cost_ratio: Interval


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of it on ``n`` tasks.

    ``accuracy`` is the difference edited less original, task by task; ``cost`` what the edited one
    costs as a share of the original. ``won`` and ``lost`` name the tasks on which they differ.
    ``problem`` is the first that went wrong in the edited one, and ``excluded`` tasks were lost to
    infrastructure.
    """

    n: int
    contenders: tuple[Contender, ...]
    accuracy: Comparison
    cost: Interval
    won: tuple[str, ...]
    lost: tuple[str, ...]
    problem: str
    excluded: int


async def attempt(
    run: Run, original: str, edited: str, split: Split, tasks: int, told: Told
) -> Trial:
    """Evaluates two sources as the run evaluated its own; ``told(done, of)`` hears of episodes.

    Cancelling it ends the process and its workers. `TaskError` when the evaluation fails.
    """
    with tempfile.TemporaryDirectory(prefix="akv-rsi-") as folder:
        files = []
        for name, source in (("original", original), ("edited", edited)):
            files.append(Path(folder, f"{name}.py"))
            files[-1].write_text(source, encoding="utf-8")
        policies = ["full", *map(str, files)]
        answer = await _answer([*EVAL, *policies, *_setting(run, split, tasks)], told)
    return _trial(answer["policies"], run.config.seed)


def _setting(run: Run, split: Split, tasks: int) -> list[str]:
    config = run.config
    asked: dict[str, Any] = {"split": split, "tasks": tasks, "seed": config.seed}
    asked |= {"model": config.model, "prices": config.prices, "budget": config.budget}
    suites = [word for suite in config.suites for word in ("--suite", suite)]
    return [*suites, *(f"--{key}={value}" for key, value in asked.items()), "--json"]


async def _answer(command: Sequence[str], told: Told) -> dict[str, Any]:
    """What the process prints."""
    child = await asyncio.create_subprocess_exec(
        *command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True
    )
    assert child.stdout is not None
    try:
        printed, last = await asyncio.gather(child.stdout.read(), _listen(child, told))
        code = await child.wait()
    except BaseException:
        await _end(child)
        raise
    if code:
        raise TaskError(_failure(code, last))
    try:
        answer: dict[str, Any] = json.loads(printed)
    except ValueError as error:
        raise TaskError(f"the evaluation printed no result: {last or 'nothing at all'}") from error
    return answer


async def _listen(child: Process, told: Told) -> str:
    """Passes progress on; returns the last line that was none."""
    last = ""
    assert child.stderr is not None
    async for raw in child.stderr:
        line = raw.decode(errors="replace").strip()
        if found := _PROGRESS.match(line):
            told(int(found[1]), int(found[2]))
        else:
            last = line or last
    return last


async def _end(child: Process) -> None:
    """Ends the process and what it started."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    await child.wait()


def _failure(code: int, last: str) -> str:
    if code < 0:
        return f"the evaluation was ended by signal {-code}" + (f": {last}" if last else "")
    told = last.removeprefix("akv-rsi: ") or f"exit code {code}, and it said nothing"
    return f"the evaluation failed: {told}"


Row = Mapping[str, Any]


def _trial(policies: Sequence[Row], seed: int) -> Trial:
    rows = list(zip(*(policy["episodes"] for policy in policies), strict=True))
    kept = [row for row in rows if all(e["outcome"] != "infrastructure" for e in row)]
    if not kept:
        raise TaskError(f"no task could be run: {rows[0][0]['detail'] if rows else 'none asked'}")
    solved = [[row[i]["success"] for row in kept] for i in range(3)]
    cost = [[_charged(row[i], row[0]) for row in kept] for i in range(3)]
    names = ("keep everything", "original", "edited")
    ours, theirs = solved[2], solved[1]
    tasks = [row[0]["task"] for row in kept]
    return Trial(
        n=len(kept),
        contenders=tuple(
            Contender(name, accuracy(solved[i]), ratio(cost[i], cost[0], seed))
            for i, name in enumerate(names)
        ),
        accuracy=compare(ours, theirs, seed),
        cost=ratio(cost[2], cost[1], seed),
        won=tuple(t for t, a, b in zip(tasks, ours, theirs, strict=True) if a > b),
        lost=tuple(t for t, a, b in zip(tasks, ours, theirs, strict=True) if a < b),
        problem=next((row[2]["detail"] for row in kept if row[2]["outcome"] != "done"), ""),
        excluded=len(rows) - len(kept),
    )


def _charged(episode: Row, full: Row) -> float:
    """As in `akv_rsi.tasks.summary.charged`: what a policy's error ended early is not cheap."""
    cost, whole = float(episode["cost"]), float(full["cost"])
    return max(cost, whole) if episode["outcome"] == "policy_error" else cost
