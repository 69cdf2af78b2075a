"""The tables of `akv-rsi audit`, from its report as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

Data = Mapping[str, Any]
MOST_TRACES, MOST_TOOLS, MOST_SKIPPED, MOST_UNKNOWN = 20, 8, 12, 5


def show(report: Data, console: Console) -> None:
    """Prints everything a person reads first: what can be acted on stands at the end."""
    overall = report["overall"]
    console.print(_traces(report))
    console.print(_mix(overall["mix"]))
    if len(report["traces"]) == 1:
        _one(report["traces"][0], console)
    console.print(_prices(overall["prices"]))
    if overall["misses"]:
        console.print(_misses(overall["misses"]))
    if overall["policies"]:
        console.print(_policies(overall["policies"], _part(report["traces"])))
        console.print(_claims(overall["claims"]))
    _agreement(report, console)
    _files(report, console)
    for note in report["notes"]:
        console.print(note, highlight=False)
    console.print("What to act on:", style="bold")
    for number, line in enumerate(report["advice"], 1):
        console.print(f"{number}. {escape(line)}", highlight=False)


def _table(title: str, first: str, *names: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first, overflow="fold")
    for name in names:
        table.add_column(name, justify="right")
    return table


def _traces(report: Data) -> Table:
    overall, traces = report["overall"], report["traces"]
    title = f"{overall['traces']} traces, {overall['calls']:,} calls; {report['prices']} prices"
    table = _table(
        title, "trace", "format", "calls", "longest prompt", "KV reads", "model/record",
        "lost to misses", "fetched again",
    )  # fmt: skip
    largest = sorted(traces, key=lambda trace: -trace["prices"][0]["cost"])
    for trace in largest[:MOST_TRACES]:
        again = trace["refetched"]
        table.add_row(
            escape(_short(trace)),
            trace["format"],
            f"{trace['calls']:,}",
            f"{trace['longest']:,}",
            percent(trace["prices"][0]["kv_read_share"]),
            _difference(trace["agreement"]),
            percent(_missed(trace)),
            percent(again["repeated"] / again["results"] if again["results"] else None),
        )
    if len(traces) > MOST_TRACES:
        table.caption = f"the {MOST_TRACES} most expensive of {len(traces)}; all are in --json"
    return table


def _short(trace: Data) -> str:
    name = trace["path"].rsplit("/", 1)[-1]
    name = name if len(name) <= 36 else f"...{name[-33:]}"
    return f"{name} {trace['id'][:24]}" if trace["id"] not in ("", "main", "0") else name


def _missed(trace: Data) -> float | None:
    cost = trace["prices"][0]["cost"]
    return sum(row["cost"] for row in trace["misses"].values()) / cost if cost else None


def _difference(agreement: Data) -> str:
    if agreement["compared"] == "nothing" or agreement["difference"] is None:
        return "-"
    mark = "" if agreement["agrees"] else " !"
    return f"{agreement['difference']:+.0%}{mark}"


def _mix(mix: Sequence[Data]) -> Table:
    table = _table("What the text is made of", "kind", "tokens", "share", "share of later reads")
    tokens, reads = (sum(share[key] for share in mix) or 1 for key in ("tokens", "read"))
    for share in mix:
        name, count = share["name"], share["tokens"]
        table.add_row(name, f"{count:,}", percent(count / tokens), percent(share["read"] / reads))
    return table


def _one(trace: Data, console: Console) -> None:
    """What only makes sense for a single trace."""
    curve = trace["curve"]
    points = (curve[round(k * (len(curve) - 1) / 4)] for k in range(5))
    grown = ", ".join(f"{size:,} (call {call})" for call, size in dict.fromkeys(map(tuple, points)))
    console.print(f"Growth of the prompt, in tokens: {grown}", highlight=False)
    table = _table("Tool output", "tool", "results", "tokens")
    for share in trace["tools"][:MOST_TOOLS]:
        table.add_row(escape(share["name"]), f"{share['count']:,}", f"{share['tokens']:,}")
    if trace["tools"]:
        console.print(table)
    repeats = trace["refetched"]["repeats"]
    if repeats:
        again = _table("Fetched again", "call", "times", "identical", "tokens again")
        for repeat in repeats[:MOST_TOOLS]:
            call = " ".join(f"{repeat['tool']} {repeat['call']}".split())
            tokens = f"{repeat['tokens']:,}"
            again.add_row(escape(call), str(repeat["times"]), str(repeat["identical"]), tokens)
        console.print(again)


def _prices(prices: Sequence[Data]) -> Table:
    title = "Keeping everything, modelled (each in its own unit)"
    table = _table(title, "prices", "cost", "KV reads, share of cost")
    for row in prices:
        table.add_row(escape(row["prices"]), _cost(row["cost"]), percent(row["kv_read_share"]))
    return table


def _misses(misses: Mapping[str, Data]) -> Table:
    title = "Cache misses in the records, by cause"
    table = _table(title, "cause", "misses", "tokens lost", "of cache writes", "cost")
    for cause, row in misses.items():
        lost, cost = f"{row['lost']:,}", _cost(row["cost"])
        table.add_row(cause, f"{int(row['misses'])}", lost, percent(row["share_of_writes"]), cost)
    return table


def _part(traces: Sequence[Data]) -> str:
    """How much was replayed of the traces that were, where that is not all."""
    traces = [trace for trace in traces if trace["replayed"]]
    calls, replayed = (sum(trace[key] for trace in traces) for key in ("calls", "replayed"))
    cut = sum(trace["replayed"] < trace["calls"] for trace in traces)
    if not cut:
        return ""
    traces_cut = "1 long trace" if cut == 1 else f"{cut} long traces"
    return (
        f"; of {traces_cut} only a part was replayed ({replayed:,} of all {calls:,} calls): --work"
    )


def _policies(policies: Sequence[Data], part: str) -> Table:
    title = "What each policy would have cost, against keeping everything"
    table = _table(
        title, "policy", "on", "cost ratio", "p10 - p90", "KV reads", "blind calls",
        "edits that paid", "",
    )  # fmt: skip
    for row in sorted(policies, key=lambda row: (row["on"], row["ratio"] or 9)):
        spread = row["spread"]
        verdict = "" if row["breaks_even"] is not False else "does not break even"
        table.add_row(
            escape(row["name"]),
            row["on"],
            "-" if row["ratio"] is None else f"{row['ratio']:.2f}",
            f"{spread['p10']:.2f} - {spread['p90']:.2f}" if spread else "-",
            percent(row["kv_read_share"]),
            percent(row["blind_share"]),
            f"{row['paid']} of {row['edits']}" if row["edits"] else "-",
            f"failed on {row['failed']}" if row["failed"] else verdict,
        )
    table.caption = f"blind calls name something that the policy had taken away{part}"
    return table


def _claims(claims: Sequence[Data]) -> Table:
    lengths = [name for name, _ in claims[0]["by_length"]]
    table = _table(
        "Published figures, on these traces: median (p10 - p90)", "claim", "published", *lengths
    )
    for claim in claims:
        cells = [_spread(spread) for _, spread in claim["by_length"]]
        table.add_row(claim["name"], f"{claim['published']:.2f}", *cells)
    return table


def _spread(spread: Data | None) -> str:
    if spread is None:
        return "-"
    return f"{spread['p50']:.2f} ({spread['p10']:.2f} - {spread['p90']:.2f}) n={spread['n']}"


def _agreement(report: Data, console: Console) -> None:
    agreement = report["overall"]["agreement"]
    if not agreement["compared"]:
        console.print("No usage is recorded for single calls: nothing to compare the model with.")
        return
    console.print(
        f"Modelled and recorded usage agree within 10% on {agreement['agree']} of"
        f" {agreement['compared']} traces that record it."
    )
    for trace in report["traces"]:
        own = trace["agreement"]
        if own["compared"] != "nothing" and not own["agrees"]:
            name, why = escape(_short(trace)), escape(own["why"])
            console.print(f"  {name}: {own['difference']:+.0%}: {why}", highlight=False)


def _files(report: Data, console: Console) -> None:
    skipped: dict[str, list[int]] = {}
    for trace in report["traces"]:
        for row in trace["skipped"]:
            total = skipped.setdefault(row["why"], [0, 0])
            total[0], total[1] = total[0] + row["count"], total[1] + row["size"]
    if skipped:
        console.print("Left out of the conversations:")
    largest = sorted(skipped.items(), key=lambda item: -item[1][1])
    for why, (count, size) in largest[:MOST_SKIPPED]:
        console.print(f"  {escape(why)}: {count:,} ({size:,} characters)", highlight=False)
    if len(largest) > MOST_SKIPPED:
        console.print(f"  and {len(largest) - MOST_SKIPPED} other kinds: see --json")
    unknown = [file["path"] for file in report["files"] if file["format"] is None]
    if unknown:
        names = ", ".join(unknown[:MOST_UNKNOWN]) + ", ..." * (len(unknown) > MOST_UNKNOWN)
        console.print(f"Not read, {len(unknown)}: {escape(names)}", highlight=False)
    for file in report["files"]:
        if file["format"] is None:
            continue
        for problem in file["problems"]:
            line = f"{file['path']}:{problem['line']}" if problem["line"] else file["path"]
            console.print(f"[yellow]{escape(line)}: {escape(problem['why'])}[/]", highlight=False)
        if file["total_problems"] > len(file["problems"]):
            more = file["total_problems"] - len(file["problems"])
            console.print(f"[yellow]{escape(file['path'])}: {more:,} more[/]", highlight=False)


def _cost(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def percent(value: float | None) -> str:
    """A share for people.

    >>> percent(0.1234), percent(None)
    ('12%', '-')
    """
    return "-" if value is None else f"{value:.0%}"
