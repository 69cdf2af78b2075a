"""How one policy is made from several: rules are handed on with the constants they use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

import libcst as cst

from akv_rsi.search import edit
from akv_rsi.search.grammar import Names
from akv_rsi.search.operators import taken_names

MOST_RULES = 12  # in a policy that was put together: more are read by nobody


def cross(source: str, donor: str, rng: Random) -> str | None:
    """``source`` with some rules of ``donor`` at its end, and the constants those use."""
    giver = edit.parse(donor)
    given = _given(giver)
    chosen = [site for site in given if rng.random() < 0.5] or (
        [rng.choice(given)] if given else []
    )
    return _with_rules(source, [(giver, chosen)])


def join(source: str, donors: Sequence[str]) -> str | None:
    """``source`` with every rule of ``donors`` that it lacks."""
    givers = [edit.parse(donor) for donor in donors]
    return _with_rules(source, [(giver, _given(giver)) for giver in givers])


def _given(giver: cst.Module) -> list[edit.Site]:
    """The rules that can be handed on."""
    return [site for site in edit.sites(giver) if _is_closed(site, giver)]


def _with_rules(source: str, parts: Sequence[tuple[cst.Module, list[edit.Site]]]) -> str | None:
    """The source with rules of other modules at its end, those it has in other numbers left out."""
    child = edit.parse(source)
    homes = edit.sites(child)
    if not homes:
        return None
    known = {_shape(child.code_for_node(home.rule)) for home in homes}
    for giver, sites in parts:
        for site in sites:
            if len(known) < MOST_RULES:
                child = _with_rule(child, giver, site, known) or child
    code = edit.tidy(child).code
    return None if code == source else code


def _with_rule(
    module: cst.Module, giver: cst.Module, site: edit.Site, known: set[str]
) -> cst.Module | None:
    """The module with one rule of another, whose shape is ``known`` then; None when it was."""
    home, taken = edit.sites(module)[-1], Names(taken_names(module))
    declared, mapping = [], {site.seg: home.seg, site.ctx: home.ctx}
    for name, line in edit.tunables(giver).items():
        if name in edit.names(site.rule):
            mapping[name] = taken.fresh(name)
            declared.append(_redeclared(giver, line, mapping[name]))
    rule = edit.renamed(site.rule, mapping)
    text = giver.code_for_node(rule.with_changes(leading_lines=[])).strip("\n")
    if _shape(text) in known:
        return None
    known.add(_shape(text))
    child = edit.append_rule(module, text)
    return child and edit.declare(child, declared)


def _shape(rule: str) -> str:
    """The text of a rule without its layout and the numbers of its constants' names."""
    return re.sub(r"(?<=[A-Z])_\d+\b|\s", "", rule)


def _is_closed(site: edit.Site, module: cst.Module) -> bool:
    """Whether a rule uses only what can be taken along: its variables, constants and the DSL."""
    own = {target for loop in edit.refreshes(site.rule) for target in edit.names(loop.target)}
    known = {site.seg, site.ctx, "len", "min", "max", "any", "all", "True", "False", "None"}
    return edit.names(site.rule) <= known | own | set(edit.DSL_NAMES) | set(edit.tunables(module))


def _redeclared(module: cst.Module, line: cst.SimpleStatementLine, name: str) -> str:
    """The declaration of a tunable under another name."""
    call = cst.ensure_type(cst.ensure_type(line.body[0], cst.Assign).value, cst.Call)
    rest = [
        module.code_for_node(arg.with_changes(comma=cst.MaybeSentinel.DEFAULT)) for arg in call.args
    ]
    return f'{name} = tunable("{name.lower()}", {", ".join(rest[1:])})'
