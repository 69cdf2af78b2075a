"""Surgery on policy source with libcst: what is not changed keeps its formatting and comments.

It works on any policy, generated or hand-written. A *rule* is an ``if`` statement directly inside
a ``for`` loop over ``ctx.segments`` in ``policy``; a *part* is one operand of its ``and`` chain.
Every operation returns the new module; `tidy` then drops constants and imports that nothing uses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import libcst as cst
import libcst.matchers as m

from akv_rsi.errors import LintError

DSL = "akv_rsi.policies.dsl"
DSL_NAMES = (
    *("Context", "Segment", "drop", "identifiers", "keep", "overlap", "refresh", "repos"),
    *("restore", "tunable"),
)
_REFRESH = m.For(iter=m.Call(func=m.Attribute(attr=m.Name("notes_about"))))
_IMPORT = m.SimpleStatementLine(body=[m.ImportFrom(module=m.Attribute(attr=m.Name("dsl")))])
_TUNABLE = m.SimpleStatementLine(
    body=[
        m.Assign(targets=[m.AssignTarget(m.Name())], value=m.Call(func=m.Name("tunable"))),
    ]
)


@dataclass(frozen=True, slots=True)
class Site:
    """A rule and its names: ``seg`` is the loop's variable, ``ctx`` the function's argument."""

    rule: cst.If
    loop: cst.For
    seg: str
    ctx: str


@lru_cache(maxsize=512)  # parents and donors are read again and again; trees do not change
def parse(source: str) -> cst.Module:
    """The syntax tree of ``source``; `LintError` when it is not Python."""
    try:
        return cst.parse_module(source)
    except cst.ParserSyntaxError as error:
        raise LintError(f"line {error.raw_line}: {error.message}") from error


def function(module: cst.Module) -> cst.FunctionDef | None:
    """The function ``policy``."""
    for statement in module.body:
        if m.matches(statement, m.FunctionDef(name=m.Name("policy"))):
            return cst.ensure_type(statement, cst.FunctionDef)
    return None


def context_name(policy: cst.FunctionDef) -> str:
    """The name of its argument."""
    return policy.params.params[0].name.value if policy.params.params else "ctx"


def loops(module: cst.Module) -> list[cst.For]:
    """The loops over ``ctx.segments``."""
    policy = function(module)
    if policy is None:
        return []
    over = m.For(
        target=m.Name(), iter=m.Attribute(m.Name(context_name(policy)), m.Name("segments"))
    )
    return [cst.ensure_type(node, cst.For) for node in m.findall(policy, over)]


def sites(module: cst.Module) -> list[Site]:
    """The rules of a program, in order."""
    policy = function(module)
    return [
        Site(statement, loop, cst.ensure_type(loop.target, cst.Name).value, context_name(policy))
        for loop in loops(module)
        for statement in loop.body.body
        if policy is not None and isinstance(statement, cst.If)
    ]


def parts(test: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The operands of an ``and`` chain, in order; any other expression is its own only part."""
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        return [*parts(test.left), *parts(test.right)]
    return [test]


def conjoin(test: cst.BaseExpression, part: cst.BaseExpression) -> cst.BaseExpression:
    """``test and part``; parentheses around a chain close around the longer one."""
    left, right = (_closed(side) for side in (test, part))
    longer = cst.BooleanOperation(left=left, operator=cst.And(), right=right)
    if len(parts(test)) == 1 or not test.lpar:
        return longer
    bare = test.with_changes(lpar=[], rpar=[])
    return longer.with_changes(left=bare, lpar=test.lpar, rpar=test.rpar)


def wrapped(module: cst.Module, test: cst.BaseExpression, width: int) -> cst.BaseExpression:
    """A chain on one line that is longer than ``width``, one part a line; others as they are."""
    text = module.code_for_node(test)
    if "\n" in text or len(text) <= width or len(parts(test)) == 1:
        return test
    lines = "\n    and ".join(module.code_for_node(part) for part in parts(test))
    whole = statement(f"if (\n    {lines}\n):\n    pass")
    return cst.ensure_type(whole, cst.If).test


def without(test: cst.BaseExpression, part: cst.BaseExpression) -> cst.BaseExpression | None:
    """``test`` less one of its parts; None when nothing is left."""
    if test is part:
        return None
    if not isinstance(test, cst.BooleanOperation) or not isinstance(test.operator, cst.And):
        return test
    left, right = without(test.left, part), without(test.right, part)
    if left is not None and right is not None:
        return test.with_changes(left=left, right=right)
    rest = left if right is None else right
    # The parentheses around the chain may hold line breaks: what is left needs them too.
    return rest and rest.with_changes(lpar=[*test.lpar, *rest.lpar], rpar=[*rest.rpar, *test.rpar])


def negate(part: cst.BaseExpression) -> cst.BaseExpression:
    """``not part``, or the operand of a ``not``."""
    if isinstance(part, cst.UnaryOperation) and isinstance(part.operator, cst.Not):
        return part.expression
    closed = part
    if isinstance(part, cst.BooleanOperation) and not part.lpar:
        closed = part.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return cst.UnaryOperation(operator=cst.Not(), expression=closed)


def replace(module: cst.Module, old: cst.CSTNode, new: cst.CSTNode) -> cst.Module:
    """The module with the node ``old`` replaced."""
    return cst.ensure_type(module.deep_replace(old, new), cst.Module)


def remove(module: cst.Module, statement: cst.CSTNode) -> cst.Module | None:
    """The module without a statement; None when its block would be empty."""
    after = module.deep_remove(statement)
    if not isinstance(after, cst.Module):
        return None
    empty = m.findall(after, m.IndentedBlock(body=[]))
    return None if empty else after


def append_rule(module: cst.Module, text: str) -> cst.Module | None:
    """The module with one more rule at the end of its last loop; None when it has no loop."""
    found = loops(module)
    if not found:
        return None
    loop = found[-1]
    body = loop.body.with_changes(body=[*loop.body.body, statement(text)])
    return replace(module, loop, loop.with_changes(body=body))


def append_statement(module: cst.Module, text: str) -> cst.Module | None:
    """The module with one more statement at the end of ``policy``."""
    policy = function(module)
    if policy is None:
        return None
    body = policy.body.with_changes(body=[*policy.body.body, statement(text)])
    return replace(module, policy, policy.with_changes(body=body))


def statement(text: str) -> cst.BaseStatement:
    """One statement."""
    return cst.ensure_type(cst.parse_statement(text), cst.BaseStatement)  # type: ignore[type-abstract]


def refreshes(rule: cst.If) -> list[cst.For]:
    """The loops in a rule's body that refresh notes."""
    return [
        node for node in rule.body.body if isinstance(node, cst.For) and m.matches(node, _REFRESH)
    ]


def repositions(module: cst.Module) -> list[cst.BaseStatement]:
    """The statements of ``policy`` that reposition and do nothing else."""
    policy = function(module)
    call = m.SimpleStatementLine(body=[m.Expr(m.Call(func=m.Name("repos")))])
    guarded = m.If(body=m.IndentedBlock(body=[call]), orelse=None)
    body = policy.body.body if policy is not None else ()
    return [s for s in body if isinstance(s, cst.BaseStatement) and m.matches(s, call | guarded)]


def tunables(module: cst.Module) -> dict[str, cst.SimpleStatementLine]:
    """The declarations of tunables by the constant's name."""
    found = {}
    for line in module.body:
        if isinstance(line, cst.SimpleStatementLine) and m.matches(line, _TUNABLE):
            assign = cst.ensure_type(line.body[0], cst.Assign)
            found[cst.ensure_type(assign.targets[0].target, cst.Name).value] = line
    return found


def label(line: cst.SimpleStatementLine) -> str:
    """The name a tunable is tuned under: the first argument of its declaration."""
    call = cst.ensure_type(cst.ensure_type(line.body[0], cst.Assign).value, cst.Call)
    value = call.args[0].value if call.args else None
    return str(value.evaluated_value) if isinstance(value, cst.SimpleString) else ""


def names(node: cst.CSTNode) -> set[str]:
    """The variable names in ``node``: attributes and keywords do not count."""
    return set(_variables(node))


def _variables(node: cst.CSTNode) -> Iterator[str]:
    if isinstance(node, cst.Name):
        yield node.value
    elif isinstance(node, (cst.Attribute, cst.Arg)):
        yield from _variables(node.value)
    else:
        for child in node.children:
            yield from _variables(child)


def declare(module: cst.Module, lines: Sequence[str]) -> cst.Module:
    """The module with more constants: behind the last tunable, else behind the imports."""
    if not lines:
        return module
    body, at = list(module.body), 0
    for i, line in enumerate(body):
        if m.matches(line, _TUNABLE) or m.matches(line, _IMPORT):
            at = i + 1
    new = [statement(line) for line in lines]
    if not tunables(module):  # the first ones are set off from the imports by an empty line
        new[0] = new[0].with_changes(leading_lines=[cst.EmptyLine(indent=False)])
    return module.with_changes(body=[*body[:at], *new, *body[at:]])


def tidy(module: cst.Module) -> cst.Module:
    """The module without unused constants, and importing what it uses of the DSL."""
    uses = [(line, names(line)) for line in module.body]
    unused = [
        declared
        for name, declared in tunables(module).items()
        if not any(name in used for line, used in uses if line is not declared)
    ]
    module = module.with_changes(body=[s for s in module.body if s not in unused])
    for line in module.body:
        if m.matches(line, _IMPORT):
            used = {name for other in module.body if other is not line for name in names(other)}
            wanted = [name for name in DSL_NAMES if name in used]
            have = cst.ensure_type(
                cst.ensure_type(line, cst.SimpleStatementLine).body[0], cst.ImportFrom
            )
            if isinstance(have.names, cst.ImportStar) or set(wanted) == {
                cst.ensure_type(alias.name, cst.Name).value for alias in have.names
            }:
                break
            new = statement(f"from {DSL} import {', '.join(wanted)}")
            return replace(module, line, new.with_changes(leading_lines=line.leading_lines))
    return module


class _Rename(cst.CSTTransformer):
    """Renames variables; attributes and keywords keep their names."""

    def __init__(self, mapping: Mapping[str, str]) -> None:
        super().__init__()
        self.mapping = mapping

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:  # noqa: N802
        return updated_node.with_changes(
            value=self.mapping.get(original_node.value, original_node.value)
        )

    def leave_Attribute(  # noqa: N802
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.Attribute:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:  # noqa: N802
        return updated_node.with_changes(keyword=original_node.keyword)


def renamed(rule: cst.If, mapping: Mapping[str, str]) -> cst.If:
    """``rule`` with its variables renamed."""
    return cst.ensure_type(rule.visit(_Rename(mapping)), cst.If)


def _closed(expression: cst.BaseExpression) -> cst.BaseExpression:
    """``expression``, in parentheses when ``and`` would otherwise split it."""
    loose = isinstance(expression, (cst.IfExp, cst.Lambda)) or (
        isinstance(expression, cst.BooleanOperation) and isinstance(expression.operator, cst.Or)
    )
    if loose and not expression.lpar:
        return expression.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return expression
