"""The page of `akv-rsi audit --html`: one file, no scripts, nothing to load, works offline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from akv_rsi.pages.html import (
    COLOURS,
    WIDTH,
    colour_of,
    document,
    heading,
    key,
    line,
    mark,
    ordered,
    paragraph,
    polyline,
    rect,
    scrolling,
    svg,
    table,
    text,
)

Data = Mapping[str, Any]
MOST_TRACES = 50
_HEIGHT = 180
_LABELS = 200  # what policies' names take of a plot's width


def page(report: Data) -> str:
    """The whole page; ``report`` is that of `Report.to_json`."""
    overall = report["overall"]
    title = f"Audit of {overall['traces']} traces, {overall['calls']:,} calls"
    parts = [
        heading(title, 1),
        paragraph(f"{report['prices']} prices. {' '.join(report['notes'])}", "note"),
        heading("What to act on"),
        ordered(report["advice"]),
        heading("What the text is made of, and what is read again"),
        _stacked(overall["mix"]),
        heading("What each policy would have cost, against keeping everything"),
        _policies(overall["policies"]),
        heading("Published figures, on these traces"),
        _claims(overall["claims"]),
        heading("Cache misses, by cause"),
        _misses(overall["misses"]),
        heading("Traces"),
        _traces(report["traces"]),
        heading("Files"),
        _problems(report["files"]),
    ]
    return document(title, parts)


def _stacked(mix: Sequence[Data]) -> str:
    """Two bars: tokens, and reads of them; a key and the figures below."""
    marks: list[str] = []
    totals = {kind: sum(share[kind] for share in mix) or 1 for kind in ("tokens", "read")}
    for row, (kind, name) in enumerate((("tokens", "tokens"), ("read", "later reads"))):
        x = 80.0
        marks.append(text(0, row * 34 + 20, name))
        for number, share in enumerate(mix):
            width = (WIDTH - 80) * share[kind] / totals[kind]
            title = f"{share['name']}: {share[kind]:,} ({share[kind] / totals[kind]:.0%})"
            marks.append(rect(x, row * 34 + 4, width, 24, colour_of(number), title))
            x += width
    entries = []
    for number, share in enumerate(mix):
        tokens, read = (f"{share[kind] / totals[kind]:.0%}" for kind in ("tokens", "read"))
        entries.append((colour_of(number), f"{share['name']} {tokens}, {read} of later reads"))
    return svg(66, "".join(marks), "make-up of the text, told below in figures") + key(entries)


def _policies(policies: Sequence[Data]) -> str:
    """A table, and for each policy its ratio over traces: p10 to p90, quartiles, median."""
    rows = [row for row in policies if row["spread"]]
    if not rows:
        return paragraph("No policy was costed.")
    top = max(1.2, *(row["spread"]["p90"] for row in rows)) * 1.05
    scale = (WIDTH - _LABELS - 40) / top
    one = _LABELS + scale
    marks = [line(one, one, 0, len(rows) * 22 + 4)]
    for number, row in enumerate(sorted(rows, key=lambda row: (row["on"], row["ratio"]))):
        marks.append(_box(row, number * 22 + 4, scale))
    marks.append(text(one, len(rows) * 22 + 18, "1.0 = keep everything", "middle"))
    plot = svg(len(rows) * 22 + 24, "".join(marks), "cost ratio of each policy, as in the table")
    names = ("policy", "on", "cost ratio", "blind calls", "edits that paid", "verdict")
    spread = scrolling(plot, "spread of the cost ratio over traces")
    entries = ((COLOURS[0], "edits the cache (engine)"), (COLOURS[1], "edits the text (any API)"))
    note = paragraph("Box: half of the traces; line: eight in ten; mark: the median.", "note")
    return spread + key(entries) + note + table(names, map(_policy_row, policies), "policies", 1)


def _box(row: Data, y: float, scale: float) -> str:
    spread, colour = row["spread"], COLOURS[0] if row["on"] == "engine" else COLOURS[1]
    title = ", ".join(f"{name} {spread[name]:.2f}" for name in ("p10", "p25", "p50", "p75", "p90"))
    low, high = (_LABELS + scale * spread[name] for name in ("p10", "p90"))
    start = _LABELS + scale * spread["p25"]
    width = max(2.0, scale * (spread["p75"] - spread["p25"]))
    drawn = line(low, high, y + 8, y + 8, colour) + rect(start, y + 2, width, 12, colour, title)
    median = mark(_LABELS + scale * spread["p50"] - 1, y, 2, 16, title)
    return text(0, y + 12, f"{row['name']} ({row['on']})") + drawn + median


def _policy_row(row: Data) -> Sequence[str]:
    ratio = "-" if row["ratio"] is None else f"{row['ratio']:.2f}"
    blind = "-" if row["blind_share"] is None else f"{row['blind_share']:.0%}"
    paid = f"{row['paid']} of {row['edits']}" if row["edits"] else "-"
    verdict = "does not break even" if row["breaks_even"] is False else ""
    return row["name"], row["on"], ratio, blind, paid, verdict


def _claims(claims: Sequence[Data]) -> str:
    lengths = [name for name, _ in claims[0]["by_length"]] if claims else []

    def cell(spread: Data | None) -> str:
        if spread is None:
            return "-"
        return f"{spread['p50']:.2f} ({spread['p10']:.2f} to {spread['p90']:.2f}), n={spread['n']}"

    rows = (
        (claim["name"], f"{claim['published']:.2f}", *(cell(s) for _, s in claim["by_length"]))
        for claim in claims
    )
    return table(("claim", "published", *lengths), rows, "published figures")


def _misses(misses: Mapping[str, Data]) -> str:
    if not misses:
        return paragraph("None found, or no cached tokens are recorded.")
    rows = (
        (cause, f"{int(row['misses'])}", f"{row['lost']:,}", f"{row['share_of_writes']:.0%}")
        for cause, row in misses.items()
    )
    names = ("cause", "misses", "tokens lost", "share of cache writes")
    return table(names, rows, "cache misses by cause")


def _traces(traces: Sequence[Data]) -> str:
    largest = sorted(traces, key=lambda trace: -trace["prices"][0]["cost"])[:MOST_TRACES]
    note = paragraph(f"The {len(largest)} most expensive of {len(traces)}.", "note")
    return note + "".join(map(_trace, largest))


def _trace(trace: Data) -> str:
    own, priced = trace["agreement"], trace["prices"][0]
    facts = [
        f"{trace['calls']:,} calls, {trace['contexts']} contexts",
        f"longest prompt {trace['longest']:,} tokens",
        f"KV reads {priced['kv_read_share']:.0%} of the cost",
    ]
    if own["compared"] != "nothing":
        facts.append(f"modelled {own['compared']} {own['difference']:+.1%} against the record")
    reason = paragraph(own["why"], "bad") if own["why"] and not own["agrees"] else ""
    name = f"{trace['path'].rsplit('/', 1)[-1]} {trace['id']}"
    head = heading(name, 3) + paragraph(f"{'; '.join(facts)}.") + reason
    return head + _curve(trace["curve"], [miss["call"] for miss in trace["largest_misses"]])


def _curve(curve: Sequence[Sequence[int]], lost: Sequence[int]) -> str:
    """Prompt tokens by call; misses are marked below."""
    if len(curve) < 2:
        return ""
    last, top = curve[-1][0] or 1, max(size for _, size in curve) or 1
    width, height = WIDTH - 80, _HEIGHT - 34
    points = ((70 + width * call / last, 10 + height * (1 - size / top)) for call, size in curve)
    marks = "".join(
        rect(69 + width * call / last, 12 + height, 2, 6, COLOURS[6], f"cache miss at call {call}")
        for call in lost
    )
    axis = line(70, WIDTH - 10, 10 + height, 10 + height)
    axis += text(64, 18, f"{top:,}", "end") + text(64, 10 + height, "0", "end")
    axis += text(WIDTH - 10, _HEIGHT - 4, f"call {last}", "end")
    told = f"prompt tokens by call: up to {top:,} in {last} calls; {len(lost)} misses are marked"
    return svg(_HEIGHT, axis + polyline(points, COLOURS[0]) + marks, told)


def _problems(files: Sequence[Data]) -> str:
    rows = [
        (file["path"], str(problem["line"] or "-"), problem["why"])
        for file in files
        for problem in file["problems"]
    ]
    count = paragraph(f"{len(files)} files, {sum(file['traces'] for file in files)} traces.")
    return count + (table(("file", "line", "problem"), rows, "problems", 1) if rows else "")
