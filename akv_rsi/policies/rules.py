"""The rules of a policy: the places in its source where it calls a verb.

Verbs change nothing that a policy can see, so a call can be taken out without changing what the
rest asks for. A policy with one call of a verb left tells what that call asks for, and one without
it what the rule is worth.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from akv_rsi.policies.tunables import parse
from akv_rsi.policies.vocabulary import VERBS


@dataclass(frozen=True, slots=True)
class Rule:
    """One call of a verb: where it stands (``line`` and ``column`` from 1 and 0), and its text."""

    line: int
    column: int
    verb: str
    text: str


def rules_of(source: str) -> tuple[Rule, ...]:
    r"""The calls of verbs in ``source``, in reading order.

    >>> [(rule.line, rule.text) for rule in rules_of("def policy(ctx):\n    repos()")]
    [(2, 'repos()')]
    """
    calls = [node for node in ast.walk(parse(source)) if _verb(node)]
    found = [_rule(node) for node in calls if isinstance(node, ast.Call)]
    return tuple(sorted(found, key=lambda rule: (rule.line, rule.column)))


def without(source: str, rule: Rule) -> str:
    """``source`` with that one call taken out."""
    return _take_out(source, lambda other: other == rule)


def alone(source: str, rule: Rule) -> str:
    """``source`` with every other call of the same verb taken out."""
    return _take_out(source, lambda other: other != rule and other.verb == rule.verb)


def _take_out(source: str, goes: Callable[[Rule], bool]) -> str:
    class Remover(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.expr:
            if _verb(node) and goes(_rule(node)):
                return ast.copy_location(ast.Constant(None), node)
            self.generic_visit(node)
            return node

    return ast.unparse(Remover().visit(parse(source))) + "\n"


def _verb(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in VERBS


def _rule(node: ast.Call) -> Rule:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    return Rule(node.lineno, node.col_offset, name, ast.unparse(node))
