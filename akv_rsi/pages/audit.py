"""The page of `akv-rsi audit --html`: one file, no scripts, nothing to load, works offline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

Data = Mapping[str, Any]
MOST_TRACES = 50
_WIDTH, _HEIGHT = 640, 180
_COLOURS = ("#4361ee", "#f3722c", "#43aa8b", "#f9c74f", "#9b5de5", "#577590", "#d62839", "#adb5bd")
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1b1b1e; background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
table { border-collapse: collapse; margin: .5rem 0; width: 100% }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid #dee2e6 }
th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere }
svg { width: 100%; height: auto; display: block } svg text { font-size: 11px; fill: #495057 }
.note { color: #495057 } .bad { color: #b02a37 }
"""


def page(report: Data) -> str:
    """The whole page; ``report`` is that of `Report.to_json`."""
    overall = report["overall"]
    parts = [
        f"<h1>Audit of {overall['traces']} traces, {overall['calls']:,} calls</h1>",
        _note(f"{report['prices']} prices. {' '.join(report['notes'])}"),
        "<h2>What to act on</h2>",
        _list(report["advice"]),
        "<h2>What the text is made of, and what is read again</h2>",
        _stacked(overall["mix"]),
        "<h2>What each policy would have cost, against keeping everything</h2>",
        _policies(overall["policies"]),
        "<h2>Published figures, on these traces</h2>",
        _claims(overall["claims"]),
        "<h2>Cache misses, by cause</h2>",
        _misses(overall["misses"]),
        "<h2>Traces</h2>",
        _traces(report["traces"]),
        "<h2>Files</h2>",
        _problems(report["files"]),
    ]
    head = f'<meta charset="utf-8"><title>akv-rsi audit</title><style>{_STYLE}</style>'
    return f"<!doctype html><html lang=en><head>{head}</head><body>{''.join(parts)}</body></html>\n"


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _list(lines: Sequence[str]) -> str:
    return f"<ol>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ol>"


def _svg(height: int, inside: str, label: str) -> str:
    box = f'viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(label)}"'
    return f"<svg {box}>{inside}</svg>"


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _rect(x: float, y: float, width: float, height: float, colour: str, title: str) -> str:
    box = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}"'
    return f'<rect {box} fill="{colour}"><title>{escape(title)}</title></rect>'


def _line(x1: float, x2: float, y1: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _stacked(mix: Sequence[Data]) -> str:
    """Two bars: tokens, and reads of them; a legend below."""
    marks: list[str] = []
    for row, (key, name) in enumerate((("tokens", "tokens"), ("read", "later reads"))):
        total, x = sum(share[key] for share in mix) or 1, 80.0
        marks.append(_text(0, row * 34 + 20, name))
        for number, share in enumerate(mix):
            width = (_WIDTH - 80) * share[key] / total
            title = f"{share['name']}: {share[key]:,} ({share[key] / total:.0%})"
            marks.append(_rect(x, row * 34 + 4, width, 24, _colour(number), title))
            x += width
    for number, share in enumerate(mix):
        x, y = 80 + number % 4 * 140, 84 + number // 4 * 18
        marks.append(_rect(x, y - 9, 10, 10, _colour(number), share["name"]))
        marks.append(_text(x + 14, y, share["name"]))
    return _svg(94 + (len(mix) - 1) // 4 * 18, "".join(marks), "make-up of the text")


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _policies(policies: Sequence[Data]) -> str:
    """A table, and for each policy its ratio over traces: p10 to p90, quartiles, median."""
    rows = [row for row in policies if row["spread"]]
    if not rows:
        return "<p>No policy was costed.</p>"
    top = max(1.2, *(row["spread"]["p90"] for row in rows)) * 1.05
    scale = (_WIDTH - 220) / top
    one = 180 + scale
    marks = [_line(one, one, 0, len(rows) * 22 + 4, _COLOURS[7])]
    for number, row in enumerate(sorted(rows, key=lambda row: (row["on"], row["ratio"]))):
        marks.append(_box(row, number * 22 + 4, scale))
    marks.append(_text(180 + scale, len(rows) * 22 + 16, "1.0 = keep everything", "middle"))
    plot = _svg(len(rows) * 22 + 22, "".join(marks), "cost ratio of each policy")
    names = ("policy", "on", "cost ratio", "blind calls", "edits that paid", "")
    return plot + _table(names, map(_policy_row, policies))


def _box(row: Data, y: float, scale: float) -> str:
    spread, colour = row["spread"], _COLOURS[0] if row["on"] == "engine" else _COLOURS[1]
    title = ", ".join(f"{key} {spread[key]:.2f}" for key in ("p10", "p25", "p50", "p75", "p90"))
    low, high = (180 + scale * spread[key] for key in ("p10", "p90"))
    line = _line(low, high, y + 8, y + 8, colour)
    start = 180 + scale * spread["p25"]
    box = _rect(start, y + 2, max(2.0, scale * (spread["p75"] - spread["p25"])), 12, colour, title)
    median = _rect(180 + scale * spread["p50"] - 1, y, 2, 16, "#1b1b1e", title)
    return _text(0, y + 12, f"{row['name']} ({row['on']})") + line + box + median


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
    return _table(("claim", "published", *lengths), rows)


def _misses(misses: Mapping[str, Data]) -> str:
    if not misses:
        return "<p>None found, or no cached tokens are recorded.</p>"
    rows = (
        (cause, f"{int(row['misses'])}", f"{row['lost']:,}", f"{row['share_of_writes']:.0%}")
        for cause, row in misses.items()
    )
    return _table(("cause", "misses", "tokens lost", "share of cache writes"), rows)


def _traces(traces: Sequence[Data]) -> str:
    largest = sorted(traces, key=lambda trace: -trace["prices"][0]["cost"])[:MOST_TRACES]
    note = _note(f"The {len(largest)} most expensive of {len(traces)}.")
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
    reason = f'<p class="bad">{escape(own["why"])}</p>' if own["why"] and not own["agrees"] else ""
    name = f"{trace['path'].rsplit('/', 1)[-1]} {trace['id']}"
    head = f"<h3>{escape(name)}</h3><p>{escape('; '.join(facts))}.</p>{reason}"
    return head + _curve(trace["curve"], _lost_at(trace))


def _lost_at(trace: Data) -> list[int]:
    return [miss["call"] for miss in trace["largest_misses"]]


def _curve(curve: Sequence[Sequence[int]], lost: Sequence[int]) -> str:
    """Prompt tokens by call; misses are marked below."""
    if len(curve) < 2:
        return ""
    last, top = curve[-1][0] or 1, max(size for _, size in curve) or 1
    width, height = _WIDTH - 60, _HEIGHT - 30
    points = " ".join(
        f"{50 + width * call / last:.1f},{10 + height * (1 - size / top):.1f}"
        for call, size in curve
    )
    line = f'<polyline points="{points}" fill="none" stroke="{_COLOURS[0]}" stroke-width="1.5"/>'
    marks = "".join(
        _rect(
            49 + width * call / last, 10 + height, 2, 6, _COLOURS[6], f"cache miss at call {call}"
        )
        for call in lost
    )
    axis = _text(46, 18, f"{top:,}", "end") + _text(46, 10 + height, "0", "end")
    axis += _text(_WIDTH - 10, _HEIGHT - 4, f"call {last}", "end")
    return _svg(_HEIGHT, line + marks + axis, "prompt tokens by call")


def _problems(files: Sequence[Data]) -> str:
    rows = [
        (file["path"], str(problem["line"] or "-"), problem["why"])
        for file in files
        for problem in file["problems"]
    ]
    count = f"<p>{len(files)} files, {sum(file['traces'] for file in files)} traces.</p>"
    return count + (_table(("file", "line", "problem"), rows) if rows else "")
