"""What a search found, in sentences."""

from __future__ import annotations

from akv_rsi.insight.compare import instructive
from akv_rsi.insight.run import Run


def summary(run: Run) -> list[str]:
    """The result, how sure it is, and what it took. For a finished run."""
    report = run.report
    assert report is not None
    best, full = report.best.test, report.keep_everything.test
    measure, ratio = report.measure, best.cost_ratio
    lines = [f"Searched on {report.found_on}."] if report.found_on else []
    lines.append(
        f"The policy found costs {ratio.estimate:.1%} of keeping everything "
        f"({ratio.low:.1%} to {ratio.high:.1%}), at {measure} {best.accuracy.estimate:.3f} against "
        f"{full.accuracy.estimate:.3f}, on {best.n} test tasks that nothing was chosen by."
    )
    if not report.best.within_budget:
        lines.append(
            f"No policy within the budget of {report.budget:g} was found: it comes nearest."
        )
    if report.oracle is not None:
        oracle = report.oracle.test
        lines.append(
            f"Hindsight, which knows what will be needed, reaches {oracle.accuracy.estimate:.3f} "
            f"at {oracle.cost_ratio.estimate:.1%}: so much is left to find."
        )
    lines += [
        f"Task by task against keeping everything its {measure} is {pair.verdict}: "
        f"{pair.accuracy[0]:+.3f} ({pair.accuracy[1]:+.3f} to {pair.accuracy[2]:+.3f})."
        for pair in report.comparisons
        if pair.against == run.full.spec.name
    ]
    kinds = [told.kind for told in instructive(run, run.policies[report.best.id])]
    if "loss" not in kinds:
        lines.append("It lost no test task that keeping everything solved.")
    lines.append(
        f"It took {report.evaluations:,} episodes and {report.wall_s:.0f} s: {report.candidates} "
        f"policies were run of {report.proposals:,} proposed. Comparing a policy with itself came "
        f"out {report.aa_check}, as it must."
    )
    return lines
