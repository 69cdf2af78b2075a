"""Runs an untrusted policy in a Monty worker process: the only module that knows Monty.

The worker has no file system, network, environment or clock, a frozen random seed, and limits on
memory, recursion and time. It loads `dsl` and `runtime` as they stand, then the policy, and keeps
the conversations resident; each turn is one message with what changed.
"""

from __future__ import annotations

import ast
import datetime
import inspect
import re
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any, get_args

import pydantic_monty

from akv_rsi.errors import LintError, PolicyCrash, PolicyError, PolicyMemory, PolicyTimeout
from akv_rsi.policies import dsl, runtime
from akv_rsi.policies.executor import Limits, SessionLost, fault, out_of_steps
from akv_rsi.policies.instrument import METER, POWER, Code
from akv_rsi.policies.resident import Asked, Delta
from akv_rsi.policies.tunables import freeze, parse
from akv_rsi.types import SegmentKind

_EPOCH = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
# Beyond the sandbox's own time limit, which it only checks between its instructions.
_GRACE = 5.0
_CONTEXT_VARIABLE = '''
class ContextVar:
    """What `dsl` uses of contextvars: the sandbox has one thread and no such module."""
    def __init__(self, name):
        self.value = None
    def get(self):
        return self.value
    def set(self, value):
        self.value = value
'''


class Sandbox:
    """One policy in one worker process; see `Executor`. The worker starts with the first use."""

    def __init__(self, code: Code, limits: Limits) -> None:
        self._code = code
        self._limits = limits
        self._pool: pydantic_monty.Monty | None = None
        self._session: pydantic_monty.MontySession | None = None

    def turn(self, deltas: Sequence[Delta], gone: Sequence[str]) -> list[Asked | None]:
        """See `Executor.turn`."""
        inputs = {"_deltas": list(deltas), "_gone": list(gone)}
        try:
            asked: list[Asked | None] = self._feed("_runtime.turn(_deltas, _gone)", inputs)
        except pydantic_monty.MontyRuntimeError as error:
            if isinstance(cause := error.exception(), Exception):
                raise  # ours: the runtime catches those of the policy
            self.close()  # such as SystemExit, which ended the turn of all conversations
            raise SessionLost(fault(cause, None), certain=True) from error
        return asked

    def failure(self, conversation: str) -> PolicyError:
        """See `Executor.failure`."""
        try:
            self._feed("_runtime.decide(_name)", {"_name": conversation})
        except pydantic_monty.MontyRuntimeError as error:
            if self._feed(f"{METER}.is_empty()"):
                return out_of_steps(self._limits.steps)
            return fault(error.exception(), self._line(error))
        return PolicyCrash("the policy failed once and then did not: it is not a pure function")

    @property
    def worker_pid(self) -> int | None:
        """The worker's process id; None when there is no worker."""
        return self._session.worker_pid if self._session is not None else None

    def close(self) -> None:
        """Ends the worker process."""
        session, self._session = self._session, None
        pool, self._pool = self._pool, None
        if session is not None:
            session.__exit__(None, None, None)
        if pool is not None:
            pool.__exit__(None, None, None)

    def _feed(self, code: str, inputs: dict[str, Any] | None = None) -> Any:
        """The value of ``code`` in the worker.

        A Python error comes through as it is; one that nothing inside can catch ends the worker.
        """
        try:
            session = self._session or self._start()
            return session.feed_run(code, inputs=inputs, print_callback=_ignore)
        except pydantic_monty.MontyCrashedError as error:
            self.close()
            if error.timed_out:
                raise SessionLost(self._out_of_time(), certain=True) from error
            broken = PolicyMemory(f"the policy broke its worker: {error}")
            raise SessionLost(broken, certain=False) from error
        except pydantic_monty.MontyRuntimeError as error:
            cause = error.exception()
            if isinstance(cause, TimeoutError) and "time limit" in str(cause):
                self.close()
                raise SessionLost(self._out_of_time(), certain=True) from error
            if isinstance(cause, MemoryError):
                self.close()
                raise SessionLost(fault(cause, self._line(error)), certain=True) from error
            raise

    def _start(self) -> pydantic_monty.MontySession:
        """A worker with the runtime and the policy loaded."""
        limits = self._limits
        self._pool = pydantic_monty.Monty(
            min_processes=1, max_processes=1, request_timeout=limits.seconds + _GRACE
        )
        self._pool.__enter__()
        self._session = session = self._pool.checkout(
            limits={
                "max_memory": limits.memory,
                "max_recursion_depth": limits.recursion,
                "max_feed_duration_secs": limits.seconds,
                "max_suspensions": 1_000_000,  # a look-up of an unknown name is one
            },
            os_policy={"datetime": _EPOCH, "sleep": "zero", "random_start": {"seed": 0}},
        )
        session.__enter__()
        session.feed_run(_prelude(), print_callback=_ignore)
        meter = f"{METER} = Meter({limits.steps})\n{POWER} = bounded_power"
        session.feed_run(meter, print_callback=_ignore)
        try:
            session.feed_run(self._code.text, print_callback=_ignore)
        except pydantic_monty.MontySyntaxError as error:
            self.close()
            refused = PolicyCrash(f"the sandbox cannot run this: {error}")
            raise SessionLost(refused, certain=True) from error
        except pydantic_monty.MontyRuntimeError as error:
            self.close()
            reason = fault(error.exception(), self._line(error))
            raise SessionLost(reason, certain=True) from error
        session.feed_run(f"_runtime = Runtime(policy, {METER})", print_callback=_ignore)
        return session

    def _line(self, error: pydantic_monty.MontyRuntimeError) -> int | None:
        """The line of the policy's source where ``error`` arose."""
        frames = [f.line for f in error.traceback() if f.filename == _POLICY_FEED]
        return self._code.lines.get(frames[-1]) if frames else None

    def _out_of_time(self) -> PolicyTimeout:
        return PolicyTimeout(f"a decision took more than {self._limits.seconds:g} s")


def check_types(source: str) -> None:
    """Raises `LintError` where the types of a linted policy do not fit; takes about 0.1 s.

    The message is one line and names each problem with its line.
    """
    lines = freeze(source, {}).splitlines()
    for node in parse("\n".join(lines)).body:
        if isinstance(node, ast.ImportFrom):  # the names are in the stubs; line numbers stay
            lines[node.lineno - 1 : node.end_lineno] = [""] * (
                (node.end_lineno or 0) - node.lineno + 1
            )
    with (
        pydantic_monty.Monty(request_timeout=Limits().seconds) as pool,
        pool.checkout(
            type_check=True, type_check_stubs=_stubs(), type_check_format="concise"
        ) as session,
    ):
        try:
            session.feed_run("\n".join(lines), print_callback=_ignore)
        except pydantic_monty.MontyTypingError as error:
            found = re.findall(r"^main\.py:(\d+):\d+: \w+\[.*?\] (.*)$", error.display(), re.M)
            raise LintError("; ".join(f"line {line}: {text}" for line, text in found)) from error


@cache
def _stubs() -> str:
    """`dsl` with its types, complete in itself."""
    text = inspect.getsource(dsl)
    kinds = f"from typing import Literal\nSegmentKind = Literal{list(get_args(SegmentKind))}"
    return text.replace("from akv_rsi.types import SegmentKind", kinds)


# How Monty names the third thing it was fed.
_POLICY_FEED = "<python-input-2>"


def _ignore(stream: str, text: str) -> None:
    """What a policy prints goes nowhere."""


@cache
def _prelude() -> str:
    """`dsl` and `runtime` as the sandbox can load them: without imports, types and docstrings."""
    return "\n".join([_CONTEXT_VARIABLE, _stripped(dsl), _stripped(runtime)])


def _stripped(module: ModuleType) -> str:
    return ast.unparse(
        ast.fix_missing_locations(_Strip().visit(ast.parse(inspect.getsource(module))))
    )


class _Strip(ast.NodeTransformer):
    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """The other module's names are in the same namespace."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.Assign:
        assert node.value is not None
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.returns = None
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node
