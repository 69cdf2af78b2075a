"""Evidence in sentences: for the critique command, for prompts, and for the run's log."""

from __future__ import annotations

from akv_rsi.search.findings import Critique, Finding, Span, Waste

REASONS = {
    "position": "closing the gaps cures it",
    "stale": "recomputing what is visible cures it",
    "other": "no dropped span explains it",
    "unrepeatable": "asked again, it goes well",
}


def sentence(finding: Finding) -> str:
    """One failure and its cause."""
    where = f"{finding.task.suite}/{finding.task.seed}, call {finding.turn}"
    told = f"{where}: said {finding.said!r} for {finding.right!r}; "
    if finding.cause != "dropped":
        return told + REASONS[finding.cause]
    lost = " with ".join(map(described, finding.culprits))
    more = f" ({len(finding.others)} others would do)" if finding.others else ""
    return f"{told}for want of {lost}{more}"


def described(span: Span) -> str:
    """A segment, by what a policy can tell of it, and its text."""
    traits = span.traits
    tool = f" of {traits.tool}" if traits.tool else ""
    flags = [name for name in ("is_error", "superseded", "noted") if getattr(traits, name)]
    flags += [f"mentioned {traits.mentioned} times"] if traits.mentioned else []
    about = ", ".join([f"{traits.tokens} tokens", f"age {traits.age}", *flags])
    return f"{traits.kind}{tool} #{span.id} ({about}): {span.text}"


def kept(waste: Waste) -> str:
    """A span that was read in vain."""
    task = f"{waste.task.suite}/{waste.task.seed}"
    return f"{task}: {waste.reads} tokens read of {described(waste.span)}"


def evidence_lines(evidence: Critique) -> str:
    """All of it, a line each."""
    lines = [sentence(finding) for finding in evidence.findings]
    lines += [f"kept in vain, {kept(waste)}" for waste in evidence.waste]
    return "\n".join(lines) or "nothing is known yet"
