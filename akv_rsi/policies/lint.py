"""The first gate for a policy's source: an allow-list over its syntax tree, with line numbers.

What is allowed is the part of Python in which a policy is a pure function of its context:
functions, loops, expressions, constants that cannot change. The rest has no use in one (imports,
classes, exceptions, attributes that are no fields), or would let it keep state between turns.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Iterator
from functools import lru_cache

from akv_rsi.errors import LintError
from akv_rsi.policies import vocabulary
from akv_rsi.policies.tunables import is_declaration, parse, tunables_of

LONGEST_SOURCE = 20_000
_MODULE = "akv_rsi.policies.dsl"
# Imports have messages of their own.
_ALLOWED = """
    Module Import ImportFrom alias Load Store arguments arg keyword comprehension
    FunctionDef Return Assign AugAssign AnnAssign For While If Expr Pass Break Continue
    BoolOp NamedExpr BinOp UnaryOp Lambda IfExp Dict Set ListComp SetComp DictComp GeneratorExp
    Compare Call FormattedValue JoinedStr Constant Attribute Subscript Starred Name List Tuple Slice
    And Or Not Add Sub Mult Div FloorDiv Mod Pow BitAnd BitOr BitXor USub UAdd
    Eq NotEq Lt LtE Gt GtE Is IsNot In NotIn
"""
_SPELLING = {
    "TryStar": "try",
    "ClassDef": "class",
    "AsyncFor": "async",
    "AsyncFunctionDef": "async",
    "AsyncWith": "async",
    "Delete": "del",
    "YieldFrom": "yield",
    "LShift": "<<",
    "RShift": ">>",
    "MatMult": "@",
    "Invert": "~",
}
_STATE = (
    "a name outside of functions must hold a number, a string, a tuple of such, or a tunable:"
    " a policy keeps no state between turns"
)

Problem = tuple[int, str]


@lru_cache(maxsize=256)  # a search opens each of its policies several times
def lint(source: str) -> None:
    """Raises `LintError` unless ``source`` is a policy that may be run in the sandbox.

    The message is one line and names every problem with its line, in order.
    """
    if len(source) > LONGEST_SOURCE:
        raise LintError(f"line 1: the source is longer than {LONGEST_SOURCE:,} characters")
    tree = parse(source)
    tunables_of(source)
    if problems := sorted(set(_Linter(tree).problems())):
        raise LintError("; ".join(f"line {line}: {problem}" for line, problem in problems))


class _Linter:
    """The checks of one module. Each yields the problems it finds."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
        self._imported = {alias.name for node in imports for alias in node.names}
        self._defined = {name for _, name in _definitions(tree)}
        self._allowed = frozenset(_ALLOWED.split())
        self._checks: dict[type[ast.AST], Callable[..., Iterator[Problem]]] = {
            ast.Import: _import,
            ast.ImportFrom: self._import_from,
            ast.FunctionDef: _function,
            ast.AugAssign: _augmented,
            ast.Attribute: _attribute,
            ast.Name: self._name,
            ast.Call: self._call,
            ast.For: _loop,
            ast.comprehension: _loop,
        }

    def problems(self) -> Iterator[Problem]:
        yield from self._entry_point()
        for statement in self._tree.body:
            yield from _top_level(statement)
        line = 1
        for node in ast.walk(self._tree):
            line = getattr(node, "lineno", line)
            kind = type(node).__name__
            if kind not in self._allowed:
                yield line, f"{_SPELLING.get(kind, kind.lower())!r} is not allowed in a policy"
            elif check := self._checks.get(type(node)):
                yield from check(node)
        for line, name in _definitions(self._tree):
            if name in vocabulary.RESERVED:
                yield line, f"{name!r} is a reserved name and cannot be redefined"
            elif name.startswith("_") and name != "_":
                yield line, f"{name!r}: names must not begin with an underscore"

    def _entry_point(self) -> Iterator[Problem]:
        functions = [node for node in self._tree.body if isinstance(node, ast.FunctionDef)]
        found = [node for node in functions if node.name == "policy"]
        if not found:
            yield 1, "no function policy(ctx) is defined"
        for node in found:
            spec = node.args
            extra = spec.vararg or spec.kwarg or spec.kwonlyargs or spec.defaults
            if extra or len(spec.posonlyargs) + len(spec.args) != 1:
                yield node.lineno, "policy must take exactly one argument, the context"

    def _import_from(self, node: ast.ImportFrom) -> Iterator[Problem]:
        if node not in self._tree.body:
            yield node.lineno, "an import must stand at the top of the file"
        if node.module == "__future__":
            return
        if node.module != _MODULE:
            module = "." * node.level + (node.module or "")
            yield node.lineno, _not_importable(module)
            return
        for alias in node.names:
            if alias.name not in vocabulary.EXPORTS:
                hint = _hint(alias.name, vocabulary.EXPORTS)
                yield node.lineno, f"unknown verb {alias.name!r}{hint}: {_MODULE} has no such name"
            if alias.asname is not None:
                yield node.lineno, f"import {alias.name} under its own name"

    def _name(self, node: ast.Name) -> Iterator[Problem]:
        name = node.id
        if name in self._defined or name in self._imported or name in vocabulary.BUILTINS:
            return
        if name in vocabulary.EXPORTS:
            yield node.lineno, f"{name!r} is used but not imported from {_MODULE}"
        else:
            known = self._defined | vocabulary.EXPORTS | vocabulary.BUILTINS
            yield node.lineno, f"unknown name {name!r}{_hint(name, known)}"

    def _call(self, node: ast.Call) -> Iterator[Problem]:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "round" and len(node.args) + len(node.keywords) > 1:
            yield node.lineno, "round takes one argument: digits differ between interpreters"
        if name == "tunable" and not any(
            isinstance(s, ast.Assign | ast.AnnAssign) and s.value is node for s in self._tree.body
        ):
            yield node.lineno, "a tunable must be declared outside of functions"


def _top_level(node: ast.stmt) -> Iterator[Problem]:
    if isinstance(node, ast.Assign | ast.AnnAssign):
        if not is_declaration(node.value) and not _is_constant(node.value):
            yield node.lineno, _STATE
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a docstring
    elif not isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef):
        yield node.lineno, "only imports, constants and functions may stand outside of functions"


def _import(node: ast.Import) -> Iterator[Problem]:
    for alias in node.names:
        yield node.lineno, _not_importable(alias.name)


def _not_importable(module: str) -> str:
    return f"import of {module} is not allowed: a policy imports only from {_MODULE}"


def _function(node: ast.FunctionDef) -> Iterator[Problem]:
    if node.decorator_list:
        yield node.lineno, "decorators are not allowed in a policy"
    for default in (*node.args.defaults, *node.args.kw_defaults):
        if default is not None and not isinstance(default, ast.Name) and not _is_constant(default):
            yield node.lineno, f"the defaults of {node.name} must be constants"


def _augmented(node: ast.AugAssign) -> Iterator[Problem]:
    if isinstance(node.op, ast.Pow):
        yield node.lineno, "'**=' is not allowed in a policy: write x = x ** y"


def _attribute(node: ast.Attribute) -> Iterator[Problem]:
    if node.attr.startswith("_"):
        yield node.lineno, f"{node.attr!r}: names that begin with an underscore are private"
    elif node.attr not in vocabulary.ATTRIBUTES:
        hint = _hint(node.attr, vocabulary.ATTRIBUTES)
        yield node.lineno, f"unknown field or method {node.attr!r}{hint}"
    elif not isinstance(node.ctx, ast.Load):
        yield node.lineno, f"{node.attr!r} cannot be assigned: a policy acts through the verbs"


def _loop(node: ast.For | ast.comprehension) -> Iterator[Problem]:
    source = node.iter
    is_call = isinstance(source, ast.Call) and isinstance(source.func, ast.Name)
    if isinstance(source, ast.Set | ast.SetComp) or (
        is_call and source.func.id in {"set", "frozenset"}  # type: ignore[attr-defined]
    ):
        yield source.lineno, "the order of a set is undefined: loop over sorted(...) of it"


def _is_constant(node: ast.AST | None) -> bool:
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and _is_constant(node.operand)
    if isinstance(node, ast.Tuple):
        return all(_is_constant(element) for element in node.elts)
    return isinstance(node, ast.Constant)


def _definitions(tree: ast.Module) -> Iterator[Problem]:
    """Every name the module binds, with its line; imports left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.lineno, node.id


def _hint(name: str, known: frozenset[str] | set[str]) -> str:
    close = difflib.get_close_matches(name, sorted(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""
