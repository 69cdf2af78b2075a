"""How one policy is made from another: mutate and simplify, on the source of any policy.

An operator draws one of the edits that apply to its parent and returns the child's source, or None
when none applied. Inserted parts come from the grammar, so a child is well typed if its parent is.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import libcst as cst
import libcst.matchers as m

from akv_rsi.search import edit
from akv_rsi.search.grammar import (
    LONGEST,
    NOT_NOW,
    Grammar,
    Names,
    render_condition,
    render_reposition,
    render_rule,
    tool_test,
)

Edit = Callable[[cst.Module, Grammar, Random], cst.Module | None]


def mutate(source: str, grammar: Grammar, rng: Random) -> str | None:
    """One change: a condition or a rule more, less or other; refresh or reposition toggled."""
    return _first(source, grammar, rng, _MUTATIONS)


def simplify(source: str, grammar: Grammar, rng: Random) -> str | None:
    """One condition, rule or refresh less."""
    return _first(source, grammar, rng, _SIMPLIFICATIONS)


def count_rules(source: str) -> int:
    """How many rules a policy has."""
    return len(edit.sites(edit.parse(source)))


def without_rule(source: str, number: int) -> str | None:
    """``source`` without its rule ``number``, from 0; None when nothing would be left."""
    module = edit.parse(source)
    child = edit.remove(module, edit.sites(module)[number].rule)
    return None if child is None else edit.tidy(child).code


def close_gaps(source: str, grammar: Grammar, rng: Random) -> str | None:
    """``source`` with a reposition; None when it has one already."""
    if edit.repositions(edit.parse(source)):
        return None
    return _first(source, grammar, rng, ((1, _toggle_reposition),))


def refresh_notes(source: str, grammar: Grammar, rng: Random) -> str | None:
    """``source`` with a rule that refreshes the notes on what it drops; None when all do."""
    if all(edit.refreshes(site.rule) for site in edit.sites(edit.parse(source))):
        return None
    return _first(source, grammar, rng, ((1, _add_refresh),))


def _first(
    source: str, grammar: Grammar, rng: Random, edits: tuple[tuple[int, Edit], ...]
) -> str | None:
    """The child by the first edit that applies, in a random order that honours the weights."""
    module, left = edit.parse(source), list(edits)
    while left:
        chosen = rng.choices(left, [weight for weight, _ in left])[0]
        left.remove(chosen)
        child = chosen[1](module, grammar, rng)
        if child is not None and (code := edit.tidy(child).code) != source:
            return code
    return None


def _pick(module: cst.Module, rng: Random) -> edit.Site | None:
    found = edit.sites(module)
    return rng.choice(found) if found else None


def _with_test(
    module: cst.Module, site: edit.Site, test: cst.BaseExpression | None
) -> cst.Module | None:
    """The module with the site's test replaced; None when there is no test left."""
    if test is None:
        return None
    test = edit.wrapped(module, test, LONGEST)
    return edit.replace(module, site.rule, site.rule.with_changes(test=test))


def _editable(module: cst.Module, site: edit.Site) -> list[cst.BaseExpression]:
    """The parts of a rule that may change: not the guards against what is dropped already."""
    seg = site.seg
    guards = {f"not {seg}.dropped", f"{seg}.dropped", f"not {seg}.pinned", f"{seg}.age > 0"}
    return [p for p in edit.parts(site.rule.test) if module.code_for_node(p) not in guards]


def _tells_age(part: cst.BaseExpression, site: edit.Site) -> bool:
    """Whether a part bounds the age: without one a rule would reach into the current turn."""
    return bool(m.findall(part, m.Attribute(m.Name(site.seg), m.Name("age"))))


def _not_now(site: edit.Site) -> cst.BaseExpression:
    return cst.parse_expression(NOT_NOW.text.format(seg=site.seg))


def taken_names(module: cst.Module) -> set[str]:
    """What a new constant of the module may not be called."""
    declared = edit.tunables(module).values()
    return edit.names(module) | {edit.label(line).upper() for line in declared}


def _condition(
    module: cst.Module, site: edit.Site, grammar: Grammar, rng: Random
) -> tuple[cst.BaseExpression, list[str]]:
    """A drawn condition in the site's variables, and the declarations it needs."""
    names = Names(taken_names(module))
    drawn = grammar.condition(rng) if rng.random() < 0.75 else grammar.target(rng)
    text = render_condition(drawn, names, site.seg, site.ctx)
    return cst.parse_expression(text), [number.declare(n) for n, number in names.declared.items()]


def _add_condition(module: cst.Module, grammar: Grammar, rng: Random) -> cst.Module | None:
    if (site := _pick(module, rng)) is None:
        return None
    part, lines = _condition(module, site, grammar, rng)
    known = [module.code_for_node(p) for p in edit.parts(site.rule.test)]
    if module.code_for_node(part) in known:
        return None
    child = _with_test(module, site, edit.conjoin(site.rule.test, part))
    return child and edit.declare(child, lines)


def _replace_condition(module: cst.Module, grammar: Grammar, rng: Random) -> cst.Module | None:
    if (site := _pick(module, rng)) is None or not (old := _editable(module, site)):
        return None
    chosen = rng.choice(old)
    part, lines = _condition(module, site, grammar, rng)
    if _tells_age(chosen, site) and not _tells_age(part, site):
        part = edit.conjoin(_not_now(site), part)
    return edit.declare(edit.replace(module, chosen, part), lines)


def _negate_condition(module: cst.Module, grammar: Grammar, rng: Random) -> cst.Module | None:
    if (site := _pick(module, rng)) is None:
        return None
    old = [part for part in _editable(module, site) if not _tells_age(part, site)]
    if not old:
        return None
    part = rng.choice(old)
    return edit.replace(module, part, edit.negate(part))


def _remove_condition(module: cst.Module, grammar: Grammar, rng: Random) -> cst.Module | None:
    if (site := _pick(module, rng)) is None or len(old := _editable(module, site)) < 2:
        return None
    part = rng.choice(old)
    if _tells_age(part, site):
        return edit.replace(module, part, _not_now(site))
    return _with_test(module, site, edit.without(site.rule.test, part))


def _add_rule(module: cst.Module, grammar: Grammar, rng: Random) -> cst.Module | None:
    found = edit.sites(module)
    if not found:
        return None
    names = Names(taken_names(module))
    rule = grammar.rule(rng, ("drop", "drop and refresh"))
    child = edit.append_rule(module, render_rule(rule, names, found[-1].seg, found[-1].ctx))
    return child and edit.declare(child, [n.declare(name) for name, n in names.declared.items()])


def _remove_rule(module: cst.Module, grammar: Grammar, rng: Random) -> cst.Module | None:
    site = _pick(module, rng)
    return None if site is None else edit.remove(module, site.rule)


def _change_tools(module: cst.Module, grammar: Grammar, rng: Random) -> cst.Module | None:
    """One tool more or less in ``seg.tool == "a"`` or ``seg.tool in ("a", "b")``."""
    if (site := _pick(module, rng)) is None or not grammar.vocabulary.tools:
        return None
    for part in _editable(module, site):
        if _is_tool_test(part, site):
            listed = {
                cst.ensure_type(n, cst.SimpleString) for n in m.findall(part, m.SimpleString())
            }
            tools = {str(node.evaluated_value) for node in listed}
            tools ^= {rng.choice(grammar.vocabulary.tools)}
            if not tools:
                return None
            return edit.replace(module, part, cst.parse_expression(tool_test(tools, site.seg)))
    return None


def _is_tool_test(part: cst.BaseExpression, site: edit.Site) -> bool:
    tool = m.Attribute(m.Name(site.seg), m.Name("tool"))
    return m.matches(part, m.Comparison(left=tool)) and not m.findall(
        part, m.NotIn() | m.NotEqual()
    )


def _toggle_refresh(module: cst.Module, grammar: Grammar, rng: Random) -> cst.Module | None:
    if (site := _pick(module, rng)) is None:
        return None
    if found := edit.refreshes(site.rule):
        return edit.remove(module, found[0])
    return _refreshing(module, site, grammar)


def _add_refresh(module: cst.Module, grammar: Grammar, rng: Random) -> cst.Module | None:
    plain = [site for site in edit.sites(module) if not edit.refreshes(site.rule)]
    return _refreshing(module, rng.choice(plain), grammar) if plain else None


def _refreshing(module: cst.Module, site: edit.Site, grammar: Grammar) -> cst.Module | None:
    if "refresh" not in grammar.vocabulary.verbs:
        return None
    body = site.rule.body
    if not isinstance(body, cst.IndentedBlock) or "drop" not in edit.names(body):
        return None
    loop = f"for note in {site.ctx}.notes_about({site.seg}):\n    refresh(note)"
    longer = body.with_changes(body=[*body.body, edit.statement(loop)])
    return edit.replace(module, site.rule, site.rule.with_changes(body=longer))


def _remove_refresh(module: cst.Module, grammar: Grammar, rng: Random) -> cst.Module | None:
    found = [loop for site in edit.sites(module) for loop in edit.refreshes(site.rule)]
    return edit.remove(module, rng.choice(found)) if found else None


def _toggle_reposition(module: cst.Module, grammar: Grammar, rng: Random) -> cst.Module | None:
    policy = edit.function(module)
    if policy is None or "repos" not in grammar.vocabulary.verbs:
        return None
    if found := edit.repositions(module):
        return edit.remove(module, found[-1])
    names = Names(taken_names(module))
    text = render_reposition(grammar.reposition(rng), names, edit.context_name(policy))
    child = edit.append_statement(module, "\n".join(text))
    return child and edit.declare(child, [n.declare(name) for name, n in names.declared.items()])


_MUTATIONS: tuple[tuple[int, Edit], ...] = (
    (4, _replace_condition),
    (4, _add_condition),
    (2, _remove_condition),
    (1, _negate_condition),
    (5, _add_rule),
    (1, _remove_rule),
    (3, _change_tools),
    (2, _toggle_refresh),
    (2, _toggle_reposition),
)
_SIMPLIFICATIONS: tuple[tuple[int, Edit], ...] = (
    (3, _remove_condition),
    (2, _remove_rule),
    (1, _remove_refresh),
)
