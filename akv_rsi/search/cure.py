"""Operators that use evidence: protect what culprits have in common, drop what was kept in vain."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from akv_rsi.search import edit
from akv_rsi.search.findings import Critique
from akv_rsi.search.grammar import Condition, Grammar, Names, Program, Rule, render, render_rule
from akv_rsi.search.learn import common
from akv_rsi.search.operators import close_gaps, refresh_notes, taken_names
from akv_rsi.search.traits import Traits

# What a rule may not do: a needed span dropped loses a task, a needless one kept only costs reads.
AGAINST_LOSS, AGAINST_WASTE = 10.0, 0.5

Weighed = list[tuple[Traits, float]]


def protect(source: str, evidence: Critique, grammar: Grammar, rng: Random) -> str | None:
    """``source`` changed against the cause of one failure; None when there is no way to.

    Against a loss: a rule that keeps segments like the culprits, and few of those that were dropped
    rightly. Against positions: a reposition. Against stale notes: refreshing them.
    """
    causes = [finding.cause for finding in evidence.findings]
    cause = rng.choice(causes) if causes else "other"
    if cause == "position":
        return close_gaps(source, grammar, rng)
    if cause == "stale":
        return refresh_notes(source, grammar, rng)
    culprits = [span.traits.rounded for f in evidence.findings for span in f.culprits]
    yes: Weighed = [(traits, 1.0) for traits in culprits]
    no: Weighed = [(s.traits, s.weight) for s in evidence.samples if s.hidden and not s.needed]
    if not yes:
        return None
    return _with_rule(source, Rule(common(yes, no, AGAINST_WASTE, rng), "keep"))


def economise(source: str, evidence: Critique, grammar: Grammar, rng: Random) -> str | None:
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
        return render(Program((rule,), grammar.reposition(rng)))
    return _with_rule(source, rule)


def _with_rule(source: str, rule: Rule) -> str | None:
    """``source`` with one rule more; None when it has no loop, or has this rule already."""
    module = edit.parse(source)
    found = edit.sites(module)
    if not found or not rule.conditions:
        return None
    names = Names(taken_names(module))
    child = edit.append_rule(module, render_rule(rule, names, found[-1].seg, found[-1].ctx))
    if child is None:
        return None
    lines = [number.declare(name) for name, number in names.declared.items()]
    code = edit.tidy(edit.declare(child, lines)).code
    return None if code == source else code


def in_words(conditions: Sequence[Condition]) -> str:
    """Conditions as people read them.

    >>> in_words((Condition("{seg}.is_error"), Condition("not {ctx}.notes_about({seg})")))
    'is_error and not notes_about(it)'
    """
    texts = []
    for condition in conditions:
        value = "" if condition.number is None else f"{condition.number.default:g}"
        text = condition.text.replace("({seg})", "(it)").replace("{seg}.", "").replace("{ctx}.", "")
        texts.append(text.format(n=value) if "{n}" in text else text)
    return " and ".join(texts)
