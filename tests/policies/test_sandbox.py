"""Attacks on the sandbox, most of them past the lint, and what is left behind afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from conversations import Talk, opening, recorded

from akv_rsi.errors import PolicyCrash, PolicyError, PolicyMemory, PolicyTimeout
from akv_rsi.policies import library
from akv_rsi.policies.executor import Limits, Plain
from akv_rsi.policies.instrument import Code, instrument
from akv_rsi.policies.open import open_policy
from akv_rsi.policies.program import Program
from akv_rsi.policies.sandbox import Sandbox
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.types import Drop, Op

TIGHT = Limits(steps=20_000, memory=16 << 20, seconds=0.5)


def source(*body: str, before: str = "") -> str:
    lines = "\n".join(f"    {line}" for line in body)
    return f"from akv_rsi.policies.dsl import drop\n{before}\ndef policy(ctx):\n{lines}\n"


def raw(*body: str) -> Program:
    """The policy as it stands in the sandbox: neither linted nor counted."""
    text = source(*body).replace("from akv_rsi.policies.dsl import drop\n", "")
    sandbox = Sandbox(Code(text, {n: n for n in range(1, 99)}), TIGHT)
    return Program("attack", text, sandbox)


def outcome(program: Program, talk: Talk | None = None) -> tuple[Op, ...] | PolicyError:
    with program:
        return program.decide_many([(talk or opening()).snapshot()])[0]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def gone_soon(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


@pytest.mark.parametrize(
    "body",
    [
        ["while True:", "    pass"],
        ["xs = [1]", "for x in xs:", "    xs.append(x)", "    xs.pop(0)", "    xs.append(x)"],
        ["def f(n):", "    return n if n <= 0 else f(n - 1) + f(n - 1)", "f(60)"],
        ["x = [0 for i in range(999) for j in range(999)]"],
        ["x = sum(range(10 ** 9))"],
        ["f = lambda g, n: n <= 0 or (g(g, n - 1) and g(g, n - 1))", "f(f, 60)"],
    ],
)
@pytest.mark.parametrize("trusted", [False, True])
def test_endless_work_is_stopped_by_its_steps(body: list[str], trusted: bool) -> None:
    limits = Limits(steps=20_000, seconds=60)  # the clock has no say
    spec = PolicySpec("attack", source=source(*body), trusted=trusted)
    failed = outcome(open_policy(spec, limits))
    assert isinstance(failed, PolicyTimeout), failed


def test_steps_are_counted_per_decision() -> None:
    body = ["for i in range(15_000):", "    pass"]
    with open_policy(PolicySpec("x", source=source(*body)), TIGHT) as program:
        assert [program.decide(opening().snapshot()) for _ in range(3)] == [(), (), ()]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (["while True:", "    pass"], PolicyTimeout),
        (["x = sum(range(10 ** 12))"], PolicyTimeout),
        (["x = pow(3, 10 ** 7)"], PolicyTimeout),
        (["x = 3 ** (10 ** 7)"], PolicyTimeout),
        (["x = [0]", "while True:", "    x = x + x"], PolicyMemory),
        (["x = 'a' * 10 ** 10"], PolicyMemory),
        (["try:", "    x = 'a' * 10 ** 10", "except BaseException:", "    pass"], PolicyMemory),
        (["def f():", "    return f()", "f()"], PolicyMemory),
        (["x = ().__class__.__bases__[0].__subclasses__()"], PolicyCrash),
        (["x = policy.__globals__"], PolicyCrash),
        (["x = ctx.segments[0].__init__.__globals__"], PolicyCrash),
        (["import os", "os.system('id')"], PolicyCrash),
        (["import os", "os.listdir('/')"], PolicyCrash),
        (["import subprocess"], PolicyCrash),
        (["import socket"], PolicyCrash),
        (["import ctypes"], PolicyCrash),
        (["open('/etc/passwd').read()"], PolicyCrash),
        (["open('/tmp/left', 'w').write('x')"], PolicyCrash),
        (["from pathlib import Path", "Path('/etc/passwd').read_text()"], PolicyCrash),
        (["import sys", "sys.exit(3)"], PolicyCrash),
        (["raise SystemExit"], PolicyCrash),
        (["undefined_name"], PolicyCrash),
    ],
)
def test_attacks_without_lint(body: list[str], error: type[PolicyError]) -> None:
    failed = outcome(raw(*body))
    assert type(failed) is error, failed


@pytest.mark.parametrize(
    "body",
    [
        ["import os", "x = os.environ.get('HOME')"],
        ["import os", "x = os.getcwd()"],
        ["import time", "x = time.time()"],
        ["import random", "x = random.random()"],
        ["import datetime", "x = datetime.datetime.now()"],
    ],
)
def test_the_world_outside_cannot_be_read(body: list[str]) -> None:
    """Either it fails, or every worker sees the same."""
    program = [raw(*body, "raise ValueError(str(x))") for _ in range(2)]
    failed = [str(outcome(p)) for p in program]
    assert failed[0] == failed[1]
    assert os.environ.get("HOME", "/root") not in failed[0]
    assert os.getcwd() not in failed[0]


def test_sleep_does_not_wait() -> None:
    start = time.monotonic()
    assert outcome(raw("import time", "time.sleep(30)")) == ()
    assert time.monotonic() - start < 10


def test_print_goes_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    assert outcome(raw("print('hello')")) == ()
    assert capfd.readouterr() == ("", "")


def test_a_policy_cannot_reach_its_meter() -> None:
    assert isinstance(
        outcome(raw("_meter.steps = 10 ** 9", "while True:", "    pass")), PolicyTimeout
    )


def test_huge_powers_fail_at_once_and_alike() -> None:
    for trusted in (False, True):
        for text in ("3 ** (10 ** 7)", "(10 ** 60) ** 60", "2 ** 65"):
            spec = PolicySpec("x", source=source(f"x = {text}"), trusted=trusted)
            assert "line 4: a power of whole numbers" in str(outcome(open_policy(spec)))
        spec = PolicySpec(
            "x", source=source("x = 0.5 ** 100 + 2 ** 64 + 4 ** 0.5"), trusted=trusted
        )
        assert outcome(open_policy(spec)) == ()


def test_one_failure_in_a_batch_leaves_the_others_alone() -> None:
    """A memory bomb in one of three conversations, a crash in another."""
    text = source(
        'if ctx.segments[1].text == "bomb":',
        "    x = 'a' * 10 ** 10",
        'if ctx.segments[1].text == "crash":',
        "    x = 1 / 0",
        "drop(ctx.segments[1])",
    )
    talks = []
    for name in ("fine", "bomb", "crash"):
        talk = opening(name)
        talk.segments[1] = talk.segments[1].__class__(1, "user", 0, 10, 20, name)
        talk.call()
        talks.append(talk)
    with open_policy(PolicySpec("x", source=text)) as program:
        for _ in range(2):
            fine, bomb, crash = program.decide_many([talk.snapshot() for talk in talks])
            assert fine == (Drop(25, ((10, 20),)),)
            assert isinstance(bomb, PolicyMemory)
            assert str(bomb).startswith("line 5: memory limit exceeded")
            assert isinstance(crash, PolicyCrash)
            assert str(crash).startswith("line 7: division by zero")


def test_lines_are_those_of_the_source() -> None:
    text = source(
        "total = 0",
        "for seg in ctx.segments:",
        "    # a comment",
        "    total += (",
        "        seg.tokens",
        "    )",
        "    total = helper(total)",
        before="\n\ndef helper(n):\n    '''Doc\n\n    more'''\n    return n // (n - n)\n",
    )
    line = text.splitlines().index("    return n // (n - n)") + 1
    for trusted in (False, True):
        failed = outcome(open_policy(PolicySpec("x", source=text, trusted=trusted)))
        assert str(failed).startswith(f"line {line}: "), failed


def test_instrumented_lines_map_one_to_one() -> None:
    text = library.spec("rolling_drop_refresh").source
    code = instrument(text, {})
    ours, theirs = text.splitlines(), code.text.splitlines()
    for new, old in code.lines.items():
        word = theirs[new - 1].split()[0].strip("'\"")
        assert word in ours[old - 1] or word.startswith("next("), (new, old)


def test_a_killed_worker_is_replaced() -> None:
    spec = library.spec("rolling_drop", keep=1)
    snapshots = recorded(3)
    with open_policy(spec) as plain:
        expected = [plain.decide(snapshot) for snapshot in snapshots]
    sandbox = Sandbox(instrument(spec.source, {"keep": 1}), Limits())
    decided = []
    with Program("x", spec.source, sandbox) as program:
        for number, snapshot in enumerate(snapshots):
            if number == 5:
                assert sandbox.worker_pid is not None
                os.kill(sandbox.worker_pid, 9)
            decided.append(program.decide(snapshot))
    assert decided == expected


def test_decisions_do_not_depend_on_the_batch_or_what_is_resident(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = library.spec("rolling_drop_refresh", keep=2)
    talks = [recorded(seed, turns=8) for seed in range(6)]
    with open_policy(spec) as plain:
        one_by_one = [[plain.decide(s) for s in talk] for talk in talks]
    monkeypatch.setattr("akv_rsi.policies.program.RESIDENT_BYTES", 100_000)
    for where in (Plain, Sandbox):
        executor = where(instrument(spec.source, {"keep": 2}), Limits())
        with Program("x", spec.source, executor) as program:
            waves = [program.decide_many(list(wave)) for wave in zip(*talks, strict=True)]
            assert [list(talk) for talk in zip(*waves, strict=True)] == one_by_one
            # Another conversation under a known name, and an earlier state of a known one.
            assert program.decide(talks[0][3]) == one_by_one[0][3]


def test_an_innocent_policy_is_not_blamed_for_what_is_resident() -> None:
    """More conversations than fit the worker's memory: each is still decided on."""
    talks = []
    for number in range(40):
        talk = opening(f"talk-{number}")
        for _ in range(20):
            talk.call()
            talk.result("x" * 5000)
        talks.append(talk.snapshot())
    text = source("for s in ctx.segments:", "    if 'zz' in s.text:", "        drop(s)")
    with open_policy(PolicySpec("x", source=text), Limits(memory=4 << 20)) as program:
        assert program.decide_many(talks) == [()] * 40
        assert [program.decide(talk) for talk in talks] == [()] * 40


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize(
    "before", ["X = -'a'", "def f(x=later):\n    pass\n\ndef later():\n    pass\n"]
)
def test_constants_that_fail(before: str, trusted: bool) -> None:
    spec = PolicySpec("x", source=source("pass", before=before), trusted=trusted)
    with pytest.raises(PolicyCrash, match=r"line 2: "), open_policy(spec) as program:
        program.decide(opening().snapshot())


def worker_of(program: Program) -> int:
    executor = program._executor
    assert isinstance(executor, Sandbox)
    assert executor.worker_pid is not None
    return executor.worker_pid


def test_close_ends_the_worker() -> None:
    program = open_policy(PolicySpec("x", source=source("pass")))
    program.decide(opening().snapshot())
    pid = worker_of(program)
    assert alive(pid)
    program.close()
    program.close()
    assert gone_soon(pid)
    assert program.decide(opening().snapshot()) == ()  # it starts another when used again
    program.close()


@pytest.mark.parametrize(
    "end", ["pass", "raise ValueError", "os._exit(1)", "os.kill(os.getpid(), 9)"]
)
def test_no_worker_outlives_the_interpreter(end: str) -> None:
    script = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_sandbox import *
program = open_policy(PolicySpec("x", source=source("pass")))
program.decide(opening().snapshot())
print(worker_of(program), flush=True)
{end}
"""
    run: Sequence[str] = [sys.executable, "-c", script]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert gone_soon(int(done.stdout))
