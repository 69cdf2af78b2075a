"""The report of a run as one page: what was found, how sure it is, and why it works."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from akv_rsi.errors import AkvError, StoreError
from akv_rsi.insight.ablation import ablate
from akv_rsi.insight.cachemap import cache_map
from akv_rsi.insight.compare import instructive, source_of
from akv_rsi.insight.module import command_of
from akv_rsi.insight.provenance import origin
from akv_rsi.insight.run import Run
from akv_rsi.insight.summary import summary
from akv_rsi.pages.html import bullets, document, heading, paragraph, scrolling, table
from akv_rsi.pages.maps import drawing, in_words, legend
from akv_rsi.pages.plots import bill, generations, pareto, parts_of
from akv_rsi.search.report import Paired, SearchReport
from akv_rsi.tasks.stats import Interval
from akv_rsi.tasks.summary import Row
from akv_rsi.types import Usage

# Recorded conversations that the policy is replayed on without each of its rules.
ABLATED_ON = 12
_NAMES = {"full": "keep everything", "oracle": "oracle (hindsight)", "grammar": "best of N"}


def page(run: Run) -> str:
    """The whole page. `StoreError` for a run that is not finished."""
    if run.report is None:
        raise StoreError(
            f"{run.path} is not finished ({run.state}): there is nothing to report yet; "
            "akv-rsi inspect --follow shows how far it is"
        )
    report, measure = run.report, run.report.measure
    title = f"A cache policy at {report.budget:g} of the cost"
    source = f"<pre><code>{escape(source_of(run.policies[report.best.id]))}</code></pre>"
    parts = [
        heading(title, 1),
        paragraph(f"akv-rsi, run {run.name}", "note"),
        heading("In words"),
        *(paragraph(line) for line in summary(run)),
        heading("Sealed test"),
        _tested(report),
        heading("The best policy against each other one"),
        _paired(report.comparisons, measure),
        heading(f"{measure.capitalize()} over cost"),
        scrolling(pareto(run), "plot of accuracy over cost"),
        heading("Round by round"),
        scrolling(generations(run), "plot of the best accuracy by round"),
        heading("The policy"),
        scrolling(source, "source of the policy"),
        bullets(origin(run, run.policies[report.best.id])),
        _splits(report),
        heading("What each rule is worth"),
        _ablation(run),
        heading("Where the cost goes"),
        _bill(run),
        heading("Three tasks"),
        *_maps(run),
        heading("Again"),
        *_again(run),
    ]
    return document(title, parts)


def _interval(value: Interval | None) -> str:
    return "-" if value is None else f"{value.estimate:.3f} [{value.low:.2f}, {value.high:.2f}]"


def _tested(report: SearchReport) -> str:
    rows: list[tuple[str, Row | None]] = [("the policy found", report.best.test)]
    rows.append(("keep everything", report.keep_everything.test))
    rows += [(f"{n.name} (hand-written)", n.test) for n in report.baselines]
    if report.best_of_n is not None:
        rows.append(("best of N, same grammar", report.best_of_n.test))
    if report.oracle is not None:
        rows.append(("oracle: hindsight, no policy", report.oracle.test))
    names = ("policy", report.measure, "in span", "beyond", "cost ratio", "tasks")
    cells = (
        (name, *map(_interval, (r.accuracy, r.in_span, r.beyond_span, r.cost_ratio)), str(r.n))
        for name, r in rows
        if r is not None
    )
    return table(names, cells, "sealed test") + paragraph("Intervals hold 95%.", "note")


def _splits(report: SearchReport) -> str:
    rows = (
        (split, _interval(row.accuracy), _interval(row.cost_ratio), str(row.n))
        for split in ("train", "validation", "test")
        if (row := getattr(report.best, split)) is not None
    )
    return table(("tasks", report.measure, "cost ratio", "count"), rows, "scores by split")


def _paired(pairs: Sequence[Paired], measure: str) -> str:
    rows = (
        (
            _NAMES.get(pair.against, pair.against),
            f"{pair.accuracy[0]:+.3f} [{pair.accuracy[1]:+.2f}, {pair.accuracy[2]:+.2f}]",
            f"{pair.cost[0]:+.1%} [{pair.cost[1]:+.1%}, {pair.cost[2]:+.1%}]",
            pair.verdict,
        )
        for pair in pairs
    )
    return table(("against", f"{measure}, task by task", "cost", "verdict"), rows, "comparisons")


def _ablation(run: Run) -> str:
    best = run.best
    assert best is not None
    tasks = run.recorded(run.full).get("test", ())[:ABLATED_ON]
    talks = [talk for task in tasks if (talk := run.trajectory(run.full, task)) is not None]
    try:
        ablated = ablate(best.spec, run.full.spec, talks, run.setting())
    except AkvError as error:
        return paragraph(f"It cannot be told: {error}", "bad")
    lines = source_of(best).splitlines()
    rows = []
    for row in ablated:
        name = "the whole policy" if row.rule is None else f"without line {row.rule.line}"
        rule = "" if row.rule is None else _condition(lines, row.rule.line)
        figures = (f"{row.ratio:.3f}", str(row.lost), str(row.beyond))
        rows.append((name, *(("-",) * 3 if row.error else figures), row.error or rule))
    names = ("policy", "cost ratio", "words lost", "calls beyond the span", "rule")
    note = (
        f"Replayed on {len(talks)} recorded conversations that kept everything, without a model: "
        "words lost are those that the agent wrote and could no longer have seen."
    )
    return table(names, rows, "ablation", 1) + paragraph(note, "note")


def _condition(lines: Sequence[str], number: int) -> str:
    """The statement a rule stands in, with the condition above it, on one line."""
    start = number - 1
    while start > 0 and not lines[start].lstrip().startswith(("if ", "for ", "def ")):
        start -= 1
    return " ".join(" ".join(lines[start:number]).split())


def _bill(run: Run) -> str:
    report = run.report
    assert report is not None
    ids = dict.fromkeys([report.best.id, run.full.id, *(n.id for n in report.baselines)])
    rows: list[tuple[str, Usage]] = []
    for identity in ids:
        seen = run.policies[identity]
        known = {report.best.id: "the policy found", run.full.id: "keep everything"}
        rows.append((known.get(identity, seen.label), seen.usage))
    whole = sum(parts_of(run, run.full.usage))
    cells = (
        (name, *(f"{part / whole:.3f}" for part in parts), f"{sum(parts) / whole:.3f}")
        for name, parts in ((name, parts_of(run, usage)) for name, usage in rows)
    )
    names = ("policy", "cache reads", "cache writes", "other input", "output", "all")
    drawn = scrolling(bill(run, rows), "cost of each policy")
    note = f"{run.prices.name} prices, sealed test, as shares of what keeping everything costs."
    return drawn + table(names, cells, "cost by kind") + paragraph(note, "note")


def _maps(run: Run) -> list[str]:
    best = run.best
    assert best is not None
    parts = [legend()]
    found = {told.kind: told for told in instructive(run, best)}
    for kind in ("win", "loss", "tie"):
        if kind not in found:
            parts.append(paragraph(f"There is no {kind} against keeping everything."))
            continue
        told = found[kind]
        parts.append(heading(f"A {kind}: {told.task.suite}/{told.task.seed}", 3))
        trajectory = run.trajectory(best, told.task)
        shown = cache_map(trajectory, run.prices) if trajectory is not None else None
        if shown is None or not shown.cells:
            parts.append(paragraph(f"{told.words}; its text was edited, so there is no map."))
            continue
        words = in_words(shown)
        parts.append(paragraph(f"{told.words.capitalize()}. {words}"))
        parts.append(scrolling(drawing(shown, words), f"cache map of {told.task.suite}"))
    return parts


def _again(run: Run) -> list[str]:
    config = run.config
    lines = (
        command_of(run),
        f"akv-rsi inspect {run.path}",
        f"akv-rsi export {run.path} --output policy.py",
    )
    about_run = (
        f"Model {config.model}, suites {', '.join(config.suites)}, {config.prices} prices, seed "
        f"{config.seed}; {config.train} train, {config.validation} validation and {config.test} "
        f"test tasks, {config.episodes} episodes an arm."
    )
    code = f"<pre><code>{escape(chr(10).join(lines))}</code></pre>"
    return [paragraph(about_run), scrolling(code, "commands")]
