"""Policies with a known fault: each drops one fact that its task needs later, and more besides."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from akv_rsi.policies.spec import PolicySpec
from akv_rsi.tasks.episode import TaskRef
from akv_rsi.tasks.suites import load_suite

SOURCE = """from akv_rsi.policies.dsl import Context, drop, repos


def policy(ctx: Context) -> None:
    for seg in ctx.segments:
        words = seg.text.split()
        if seg.kind == "tool_result" and seg.age >= 1 and not seg.dropped:
            if "{value}" in words or "pending" in words or seg.superseded_by is not None:
                drop(seg)
    if ctx.position_span > 0.9 * ctx.reliable_span:
        repos()
"""


@dataclass(frozen=True)
class Planted:
    """A task, its faulty policy, and the word that only the culprit holds."""

    task: TaskRef
    spec: PolicySpec
    value: str


def plant(task: TaskRef) -> Planted | None:
    """A fact that is shown once, restated nowhere and needed later is dropped at once."""
    script = load_suite(task.suite).script(task.seed)
    shown = {fact: i for i, step in reversed(list(enumerate(script.steps))) for fact in step.shows}
    needed = {fact: i for i, step in enumerate(script.steps) for fact in step.needs}
    restated = {fact for step in script.steps for fact in step.restates}
    facts = [
        f for f, at in needed.items() if f in shown and f not in restated and at > shown[f] + 1
    ]
    if not facts:
        return None
    _, value = script.facts[Random(task.seed).choice(facts)]
    return Planted(task, PolicySpec("p", source=SOURCE.format(value=value), trusted=True), value)
