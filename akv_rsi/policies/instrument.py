"""Makes a policy's source count its own steps, so that its limits do not depend on the machine.

Both the sandbox and plain Python run the instrumented text: a step is a round of a loop or of a
comprehension, or a call of one of the policy's functions. Line numbers are mapped back.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from akv_rsi.policies.tunables import Number, freeze, parse

METER = "_meter"
POWER = "_power"


@dataclass(frozen=True, slots=True)
class Code:
    """Runnable text without imports and annotations; ``lines`` maps its lines to the source's."""

    text: str
    lines: Mapping[int, int]


def instrument(source: str, values: Mapping[str, Number]) -> Code:
    """The runnable form of a linted policy with its tunables frozen at ``values``."""
    tree = parse(freeze(source, values))
    tree = ast.fix_missing_locations(_Counting().visit(tree))
    text = ast.unparse(tree)
    pairs = zip(_statements(ast.parse(text)), _statements(tree), strict=True)
    return Code(text, {new.lineno: old.lineno for new, old in pairs})


def _statements(tree: ast.AST) -> Iterator[ast.stmt]:
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            yield node


def _fuel() -> ast.expr:
    return _call("next", [ast.Attribute(ast.Name(METER, ast.Load()), "fuel", ast.Load())])


def _call(name: str, arguments: list[ast.expr]) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), arguments, [])


class _Counting(ast.NodeTransformer):
    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Imported names are there already."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.returns = None
        node.body = _counted(node, node.body)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        self.generic_visit(node)
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        node.body = _counted(node, node.body)
        return node

    def visit_While(self, node: ast.While) -> ast.While:
        self.generic_visit(node)
        node.body = _counted(node, node.body)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        self.generic_visit(node)
        node.body = ast.copy_location(ast.BoolOp(ast.And(), [_fuel(), node.body]), node.body)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        self.generic_visit(node)
        node.ifs = [_fuel(), *node.ifs]
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.Pow):
            return ast.copy_location(_call(POWER, [node.left, node.right]), node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id != "range":
            return node
        bounded = ast.Attribute(ast.Name(METER, ast.Load()), "bounded_range", ast.Load())
        return ast.copy_location(bounded, node)


def _counted(owner: ast.stmt, body: list[ast.stmt]) -> list[ast.stmt]:
    return [ast.copy_location(ast.Expr(_fuel()), owner), *body]
