"""Worker processes: the same results, whatever happens to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy import MakeDying, faulty_agent, toy_agent, toy_suite

from akv_rsi.errors import EngineError
from akv_rsi.policies import library
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.tasks.bench import Agent
from akv_rsi.tasks.cost import PRESETS
from akv_rsi.tasks.episode import Episode, TaskRef
from akv_rsi.tasks.evaluator import Evaluator, EvaluatorConfig
from akv_rsi.tasks.workers import WorkerPool

SPECS = [library.spec("full"), library.spec("trim"), PolicySpec("oracle", kind="oracle")]
TASKS = [TaskRef("toy", seed, "train") for seed in range(9)]
HERE = Path(__file__).parent


def evaluator(workers: int, make: Callable[[], Agent] = toy_agent) -> Evaluator:
    config = EvaluatorConfig(workers=workers, shard_tasks=3)
    return Evaluator(make, PRESETS["claude"], config, toy_suite)


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def test_results_do_not_depend_on_the_number_of_processes() -> None:
    with evaluator(0) as alone, evaluator(2) as two:
        expected = alone.run(SPECS, TASKS, keep=True)
        assert two.run(SPECS, TASKS, keep=True) == expected
        assert two.totals == alone.totals
        scripts = alone.scripts(TASKS)
        assert two.scripts(TASKS) == scripts
        known = [s for s in scripts if s is not None]
        assert two.replay_cost(SPECS[0], known) == alone.replay_cost(SPECS[0], known)


def test_a_worker_that_dies_once_changes_nothing(tmp_path: Path) -> None:
    reported: list[Episode] = []
    with evaluator(0) as alone, evaluator(1, MakeDying(str(tmp_path / "died"))) as one:
        one.on_episode = reported.append
        assert one.run(SPECS, TASKS) == alone.run(SPECS, TASKS)
    assert (tmp_path / "died").exists()
    assert len(reported) == len(SPECS) * len(TASKS)
    assert len({(e.policy, e.task) for e in reported}) == len(reported)


def test_a_worker_that_keeps_dying_is_an_engine_error() -> None:
    with evaluator(1, MakeDying("")) as one, pytest.raises(EngineError, match="died 2 times"):
        one.run(SPECS, TASKS)


def test_an_engine_failure_in_a_worker_is_raised_here() -> None:
    with (
        evaluator(2, faulty_agent) as two,
        pytest.raises(EngineError, match="out of pages") as info,
    ):
        two.run(SPECS, TASKS)
    assert any("in a worker process" in note for note in info.value.__notes__)


def pid_of(state: Any, report: Callable[[Any], None]) -> int:
    return os.getpid()


def nothing() -> str:
    return "nothing"


def sleep(state: Any, report: Callable[[Any], None]) -> None:
    report(os.getpid())
    time.sleep(60)


def test_workers_stay_between_maps_and_end_with_the_pool() -> None:
    with WorkerPool(nothing, 1) as pool:
        first, second = pool.map([pid_of])[0], pool.map([pid_of])[0]
        assert first == second != os.getpid()
    assert not is_alive(first)


def test_a_worker_killed_while_idle_is_replaced() -> None:
    with WorkerPool(nothing, 1) as pool:
        (first,) = pool.map([pid_of])
        os.kill(first, signal.SIGKILL)
        assert wait_until(lambda: not is_alive(first))
        assert pool.map([pid_of]) != [first]


def test_an_interrupted_map_leaves_no_workers() -> None:
    pids: list[int] = []

    def interrupt(pid: int) -> None:
        pids.append(pid)
        raise KeyboardInterrupt

    with WorkerPool(nothing, 2) as pool, pytest.raises(KeyboardInterrupt):
        pool.map([sleep, sleep], interrupt)
    assert pids
    assert not any(map(is_alive, pids))


# What a shell starts in the background ignores Ctrl-C: this parent must not inherit that.
SCRIPT = """
import signal
import sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, {here!r})
from akv_rsi.tasks.workers import WorkerPool
from test_workers import nothing, sleep
if __name__ == "__main__":
    with WorkerPool(nothing, 2) as pool:
        pool.map([sleep, sleep], lambda pid: print(pid, flush=True))
"""


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGINT])
def test_no_worker_outlives_its_parent(tmp_path: Path, kill: signal.Signals) -> None:
    """Also when the parent is killed while workers compute; Ctrl-C reaches the whole group."""
    script = tmp_path / "parent.py"
    script.write_text(SCRIPT.format(here=str(HERE)))
    parent = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert parent.stdout is not None
    pids = [int(parent.stdout.readline()) for _ in range(2)]
    assert all(map(is_alive, pids))
    if kill == signal.SIGINT:
        os.killpg(parent.pid, kill)
    else:
        parent.send_signal(kill)
    _, errors = parent.communicate(timeout=60)
    assert wait_until(lambda: not any(map(is_alive, pids)))
    if kill == signal.SIGINT:
        assert errors.count("Traceback") == 1, errors


def name_process(state: object, report: object) -> int:
    return os.getpid()


def fail(state: object, report: object) -> int:
    raise LookupError("this job only")


def test_a_job_that_fails_costs_neither_the_workers_nor_the_other_jobs() -> None:
    with WorkerPool(int, count=2) as pool:
        before = set(pool.map([name_process] * 8))
        with pytest.raises(LookupError, match="this job only"):
            pool.map([fail, name_process, name_process])
        assert set(pool.map([name_process] * 8)) <= before
