"""Numbers a search may choose: declared in a policy's source, frozen before it runs.

``KEEP = tunable("keep", 1, 16, default=6)`` at the top of a policy declares one. `freeze` writes
chosen values into the source, so that what runs is also what is exported.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from akv_rsi.errors import ConfigError, LintError

Number = int | float
N = TypeVar("N", int, float)


def tunable(name: str, low: N, high: N, default: N, log: bool = False) -> N:
    """Declares a number in ``[low, high]``; a plain Python run takes its default.

    It is an integer when ``low``, ``high`` and ``default`` are; ``log`` searches on a log scale.
    The arguments must be literals: the search reads them from the source.
    """
    return default


@dataclass(frozen=True, slots=True)
class Tunable:
    """A declared number: its inclusive range, default and scale. ``name`` is its key everywhere."""

    name: str
    low: Number
    high: Number
    default: Number
    integer: bool
    log: bool

    @property
    def call(self) -> str:
        """Its declaration, as it stands in a source."""
        log = ", log=True" if self.log else ""
        return f'tunable("{self.name}", {self.low}, {self.high}, default={self.default}{log})'

    def check(self, value: Number) -> Number:
        """``value`` as this tunable's type; `ConfigError` when it does not fit."""
        if isinstance(value, bool) or not self.low <= value <= self.high:
            raise ConfigError(f"tunable {self.name} = {value} is outside [{self.low}, {self.high}]")
        if self.integer and value != int(value):
            raise ConfigError(f"tunable {self.name} = {value} must be a whole number")
        return int(value) if self.integer else float(value)


def tunables_of(source: str) -> tuple[Tunable, ...]:
    """The tunables a policy declares, in order; `LintError` when a declaration is malformed."""
    found = tuple(declared for _, declared in _declarations(parse(source)))
    names = [declared.name for declared in found]
    for name in names:
        if names.count(name) > 1:
            raise LintError(f"tunable {name!r} is declared twice")
    return found


def freeze(source: str, values: Mapping[str, Number]) -> str:
    """``source`` with every tunable's value in place of its declaration, on the same line numbers.

    Tunables without a value in ``values`` take their defaults; `ConfigError` for an unknown name or
    a value outside its range.

    >>> freeze('KEEP = tunable("keep", 1, 16, default=6)', {"keep": 3})
    'KEEP = 3'
    """
    return _rewritten(source, values, lambda declared, value: repr(value))


def redeclare(source: str, values: Mapping[str, Number]) -> str:
    """``source`` with ``values`` as the defaults of its tunables; errors and lines as `freeze`.

    >>> redeclare('KEEP = tunable("keep", 1, 16, default=6)', {"keep": 3})
    'KEEP = tunable("keep", 1, 16, default=3)'
    """
    return _rewritten(source, values, lambda declared, value: replace(declared, default=value).call)


def _rewritten(
    source: str, values: Mapping[str, Number], text_of: Callable[[Tunable, Number], str]
) -> str:
    """``source`` with other text for each declaration, on the same line numbers."""
    declarations = list(_declarations(parse(source)))
    known = [declared.name for _, declared in declarations]
    if unknown := sorted(set(values) - set(known)):
        raise ConfigError(
            f"unknown tunables: {', '.join(unknown)} (known: {', '.join(known) or 'none'})"
        )
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    text = source.encode()
    for call, declared in sorted(declarations, key=lambda pair: -pair[0].lineno):
        start = starts[call.lineno - 1] + call.col_offset
        end = starts[(call.end_lineno or call.lineno) - 1] + (call.end_col_offset or 0)
        value = declared.check(values.get(declared.name, declared.default))
        new = text_of(declared, value).encode()
        text = text[:start] + new + b"\n" * text.count(b"\n", start, end) + text[end:]
    return text.decode()


def parse(source: str) -> ast.Module:
    """The syntax tree of a policy; `LintError` with a line number when it has none."""
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise LintError(f"line {error.lineno or 1}: syntax error: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:  # NUL bytes, absurd nesting
        raise LintError(f"line 1: the source cannot be parsed: {error}") from error


def is_declaration(node: ast.AST | None) -> bool:
    """Whether ``node`` is a call of `tunable`."""
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "tunable"
    )


def _declarations(module: ast.Module) -> Iterator[tuple[ast.Call, Tunable]]:
    for statement in module.body:
        value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.Call) and is_declaration(value):
            yield value, _read(value)


def _read(call: ast.Call) -> Tunable:
    names = ("name", "low", "high", "default", "log")
    if len(call.args) > len(names):
        raise LintError(f"line {call.lineno}: tunable takes (name, low, high, default, log)")
    given = dict(zip(names, call.args, strict=False))
    given.update({keyword.arg or "**": keyword.value for keyword in call.keywords})
    try:
        values = {name: ast.literal_eval(node) for name, node in given.items()}
    except ValueError as error:
        raise LintError(f"line {call.lineno}: the arguments of tunable must be literals") from error
    if not set(names[:4]) <= set(values) <= set(names):
        raise LintError(f"line {call.lineno}: tunable takes (name, low, high, default, log)")
    numbers = [values["low"], values["high"], values["default"]]
    if not isinstance(values["name"], str) or not values["name"].isidentifier():
        raise LintError(f"line {call.lineno}: a tunable's name must be an identifier in quotes")
    if any(isinstance(n, bool) or not isinstance(n, int | float) for n in numbers):
        raise LintError(f"line {call.lineno}: tunable {values['name']!r} needs numbers")
    low, high, default = numbers
    log = bool(values.get("log", False))
    if not low < high or not low <= default <= high or (log and low <= 0):
        raise LintError(
            f"line {call.lineno}: tunable {values['name']!r} needs low < high,"
            " low <= default <= high and, with log=True, low > 0"
        )
    integer = all(isinstance(n, int) for n in numbers)
    return Tunable(values["name"], low, high, default, integer, log)
