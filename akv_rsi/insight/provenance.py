"""Where a policy comes from and what is known of it, as lines for people."""

from __future__ import annotations

from akv_rsi.insight.run import Run
from akv_rsi.insight.seen import SPLITS, Seen
from akv_rsi.policies.vocabulary import capabilities_of
from akv_rsi.search.findings import Critique
from akv_rsi.search.tell import evidence_lines


def about(run: Run, seen: Seen) -> list[str]:
    """Origin, scores, screen, parity and what was said of it; headings end with a colon."""
    return [
        f"{seen.label}:",
        *origin(run, seen),
        *_scores(run, seen),
        *_screen(seen),
        *_parity(run, seen),
        *_said(run, seen),
    ]


def origin(run: Run, seen: Seen) -> list[str]:
    """What made it, from what, and what came of it."""
    if not seen.origin:
        return ["a reference, not a candidate"]
    made = seen.candidate
    lines = [f"id {seen.id}, {seen.origin}: {made.operator} in round {made.born}"]
    for parent in made.parents:
        known = run.policies.get(parent)
        lines.append(f"from {known.label if known else parent[:8]}")
    children = sum(seen.id in other.candidate.parents for other in run.policies.values())
    if children:
        lines.append(f"{children} policies were bred from it")
    if seen.spec.kind == "program":
        needs = ", ".join(sorted(capabilities_of(seen.spec.source)))
        lines.append(f"needs {needs or 'nothing'} of its target")
    return lines


def _scores(run: Run, seen: Seen) -> list[str]:
    lines = []
    for split in SPLITS:
        if standing := run.standing(seen, split):
            score = standing.score
            (a, b, c), (d, e, f) = score.accuracy, score.cost_ratio
            lines.append(f"{split:10} acc {a:.3f} [{b:.2f} {c:.2f}]  n={score.n}")
            lines.append(f"{'':10} cost {d:.3f} [{e:.2f} {f:.2f}]")
    return ["", "Scores, with 95% intervals:", *lines] if lines else []


def _screen(seen: Seen) -> list[str]:
    found = seen.screening
    if found is None:
        return []
    lines = ["", "On recorded conversations:"]
    if found.fate:
        lines.append(f"not run: {found.fate}")
    if found.ratio:
        lines.append(
            f"cost {found.ratio:.3f}; it lets the agent see what it wrote: {found.safety:.2f}"
        )
    return lines


def _parity(run: Run, seen: Seen) -> list[str]:
    for step in run.steps:
        if step.kind == "parity" and step.key == seen.id:
            if step.body is None:
                return ["", "Parity: it decided otherwise in plain Python"]
            return ["", f"Parity: alike in sandbox and Python, {step.body['decisions']} decisions"]
    return []


def _said(run: Run, seen: Seen) -> list[str]:
    """The lesson it was made by, and why it failed where it did, as far as the search asked."""
    lesson = seen.candidate.lesson
    lines = ["", "Made by the lesson:", lesson] if lesson else []
    for step in run.steps:
        if step.kind == "evidence" and step.key == seen.id and isinstance(step.body, Critique):
            lines += ["", "Why it failed:", *evidence_lines(step.body).splitlines()]
    return lines
