"""Operators that use evidence: protect what culprits have in common, drop what was kept in vain."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import libcst as cst

from akv_rsi.search import edit
from akv_rsi.search.findings import Critique
from akv_rsi.search.grammar import (
    Grammar,
    Names,
    Program,
    Rule,
    render,
    render_rule,
)
from akv_rsi.search.learn import common
from akv_rsi.search.operators import close_gaps, refresh_notes, taken_names
from akv_rsi.search.traits import Traits

# What a rule may not do: a needed span dropped loses a task, a needless one kept only costs reads.
AGAINST_LOSS, AGAINST_WASTE = 10.0, 0.5

Weighed = list[tuple[Traits, float]]


@dataclass(frozen=True, slots=True)
class Cured:
    """A changed source, and the lesson it follows: a rule, or what the cause was."""

    source: str
    lesson: str


def protect(source: str, evidence: Critique, grammar: Grammar, rng: Random) -> Cured | None:
    """``source`` changed against the cause of one failure; None when there is no way to.

    Against a loss: a rule that keeps segments like the culprits, and few of those that were dropped
    rightly. Against positions: a reposition. Against stale notes: refreshing them.
    """
    causes = [finding.cause for finding in evidence.findings]
    cause = rng.choice(causes) if causes else "other"
    if cause in ("position", "stale"):
        change = close_gaps if cause == "position" else refresh_notes
        child = change(source, grammar, rng)
        return Cured(child, f"against {cause} failures") if child is not None else None
    culprits = [span.traits.rounded for f in evidence.findings for span in f.culprits]
    yes: Weighed = [(traits, 1.0) for traits in culprits]
    no: Weighed = [(s.traits, s.weight) for s in evidence.samples if s.hidden and not s.needed]
    return _cured(source, Rule(common(yes, no, AGAINST_WASTE, rng), "keep")) if yes else None


def economise(source: str, evidence: Critique, grammar: Grammar, rng: Random) -> Cured | None:
    """``source`` with a rule that drops what was read in vain, and as little as can be of the rest.

    A source without rules, which keeps everything, becomes this one rule.
    """
    seen = [sample for sample in evidence.samples if not sample.hidden]
    yes: Weighed = [(s.traits, s.weight) for s in seen if not s.needed]
    no: Weighed = [(s.traits, s.weight) for s in seen if s.needed]
    conditions = common(yes, no, AGAINST_LOSS, rng) if yes else ()
    if not conditions:
        return None
    rule = Rule(conditions, "drop")
    if not edit.sites(edit.parse(source)):
        return Cured(render(Program((rule,), grammar.reposition(rng))), stated(rule))
    return _cured(source, rule)


def heed(source: str, lesson: str) -> str | None:
    """``source`` with the rule that a lesson states; None when it states none, or has no effect."""
    action, stated, test = lesson.partition("(seg) if ")
    module = edit.parse(source)
    found = edit.sites(module)
    if not stated or not found or (f"{action}(seg)" in source and test in source):
        return None
    text = f"if not seg.dropped and seg.age > 0 and {test}:\n    {action}(seg)"
    rule = cst.ensure_type(edit.statement(text), cst.If)
    rule = edit.renamed(rule, {"seg": found[-1].seg, "ctx": found[-1].ctx})
    child = edit.append_rule(module, module.code_for_node(rule))
    return None if child is None else edit.tidy(child).code


def _cured(source: str, rule: Rule) -> Cured | None:
    """``source`` with one rule more; None when it has no loop, or the rule says nothing."""
    module = edit.parse(source)
    found = edit.sites(module)
    if not found or not rule.conditions:
        return None
    names = Names(taken_names(module))
    child = edit.append_rule(module, render_rule(rule, names, found[-1].seg, found[-1].ctx))
    if child is None:
        return None
    lines = [number.declare(name) for name, number in names.declared.items()]
    return Cured(edit.tidy(edit.declare(child, lines)).code, stated(rule))


def stated(rule: Rule) -> str:
    """A rule as a lesson: what `heed` reads.

    >>> from akv_rsi.search.grammar import AGE, Condition
    >>> stated(Rule((Condition("{seg}.is_error"), Condition("{seg}.age >= {n}", AGE)), "drop"))
    'drop(seg) if seg.is_error and seg.age >= 4'
    """
    texts = [
        condition.text.format(seg="seg", ctx="ctx", n=condition.number and condition.number.default)
        for condition in rule.conditions
    ]
    return f"{rule.action}(seg) if {' and '.join(texts)}"
