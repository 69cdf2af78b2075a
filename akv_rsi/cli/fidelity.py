"""`akv-rsi fidelity`: what policies do to the likelihood of recorded actions, by a model.

A command of its own, not an option of `audit`: that one needs no model, reads files of any size and
takes seconds; this one loads weights and runs them over every conversation once for each policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from akv_rsi.cli.names import policy_named
from akv_rsi.cli.output import interval, print_json
from akv_rsi.config import EngineConfig
from akv_rsi.errors import ConfigError
from akv_rsi.policies import library
from akv_rsi.tasks.agent import ChatFormat
from akv_rsi.tasks.load import find_model, load_engine
from akv_rsi.tasks.script import demonstrate
from akv_rsi.tasks.suites import load_suite, task_refs
from akv_rsi.tasks.traces.fidelity import Fidelity
from akv_rsi.tasks.traces.fidelity_rows import fidelity_rows
from akv_rsi.tasks.traces.model import Modelled
from akv_rsi.tasks.traces.provider import Tariff, load_tariff
from akv_rsi.tasks.traces.read import troubles
from akv_rsi.tasks.traces.redact import mask
from akv_rsi.tasks.traces.redact import redact as redacted
from akv_rsi.tasks.traces.replays import Setting
from akv_rsi.tasks.traces.scripts import reading_whole, recorded, script_of

MAX_TURNS = 200
MOST_SHOWN = 5
_GAPS = ("gap_per_token", "gap_per_call")
_CAPTION = (
    "nats: log-probability of what the agent wrote, less that with everything kept; kept: mean"
    " share of a token's probability that is left; gone: text that the policy had taken away in"
    " the end"
)


def fidelity(
    *paths: str,
    suite: tuple[str, ...] = (),
    model: str = "reference",
    policy: tuple[str, ...] = (),
    prices: str = "claude",
    tokens: int = 2048,
    conversations: int = 16,
    spans: int = 3,
    redact: bool = False,
    json: bool = False,
) -> None:
    """Measure by a model what policies do to recorded actions.

    The recorded text is run through the engine as it was, and under each policy; the
    log-probability of what the agent wrote is compared, per token and per call, and of the largest
    segments a policy took away each is given back alone, to see which loss hurt.

    Args:
        paths: Recorded transcripts: files, or folders that hold them.
        suite: Experts' transcripts of a suite instead (repo, web, tools); may be repeated.
        model: reference, a folder with a model, a .gguf file, or a hub id.
        policy: A policy, such as rolling_drop:keep=3, or a file; may be repeated. Default: the
            library.
        prices: claude, deepseek, gpt, gpu, or a .json file: for the cost beside the fidelity.
        tokens: Of each conversation the first calls within so many tokens.
        conversations: Of how many conversations at most, the first ones.
        spans: How many lost segments of each conversation are given back. 0 for none.
        redact: Leave all text of the transcripts out of the result (keys and passwords always are).
        json: Print the result as JSON.
    """
    if bool(paths) == bool(suite):
        raise ConfigError("name transcripts, or --suite, and not both")
    if tokens < 2 or conversations < 1 or spans < 0:
        raise ConfigError("--tokens must be at least 2, --conversations 1, --spans 0")
    specs = {name: policy_named(name, oracle=False) for name in policy or library.names()}
    (folder, chat), tariff = find_model(model), load_tariff(prices)
    reading = None if suite else reading_whole(paths)
    contexts = recorded(reading) if reading else _of_suites(suite, chat, tariff, conversations)
    found = (script_of(context, chat, tokens) for context in contexts)
    scripts = [*islice((one for one in found if one is not None), conversations)]
    for line in troubles(reading.files) if reading else ():
        Console(stderr=True).print(line, style="yellow", highlight=False, markup=False)
    if not scripts:
        raise ConfigError(
            f"no conversation in {', '.join(paths or suite)} has two calls within {tokens} tokens"
        )
    rows = fidelity_rows(
        track(scripts, "fidelity", console=Console(stderr=True)),
        specs,
        Fidelity(load_engine(folder, EngineConfig())),
        tariff,
        Setting(tariff.prices, chat.reliable_span),
        spans,
    )
    shown = [row.to_json(redacted if redact else mask) for row in rows]
    about = {"model": model, "conversations": len(scripts), "tokens": tokens, "prices": prices}
    if json:
        print_json(about | {"policies": shown})
    else:
        _show(about, shown, Console())


def _of_suites(
    suites: tuple[str, ...], chat: ChatFormat, tariff: Tariff, count: int
) -> Iterator[Modelled]:
    """The experts' transcripts of validation tasks."""
    for task in task_refs(suites, "validation", count):
        environment = load_suite(task.suite).environment(task.seed)
        name = f"{task.suite}/{task.seed}"
        script = demonstrate(name, environment, chat, tariff.prices, MAX_TURNS)
        if script is not None:
            count = len(script.calls)
            yield Modelled(script, "start", (None,) * count, (0,) * count)


def _show(about: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    table = Table(title=_title(about), title_justify="left", caption=_CAPTION)
    table.add_column("policy", overflow="fold")
    for name in ("nats per token", "nats per call", "kept", "cost", "gone"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        if row["failed"]:
            table.add_row(escape(row["policy"]), f"[red]{escape(row['failed'])}[/red]")
            continue
        gaps = [interval(tuple(row[key].values()), "+") for key in _GAPS]
        cost = f"{row['cost_ratio']:.3f}"
        table.add_row(
            escape(row["policy"]), *gaps, f"{row['kept']:.3f}", cost, f"{row['gone_share']:.0%}"
        )
    console.print(table)
    for line in (*_idle(about, rows), *_worst(rows), *_hurts(rows)):
        console.print(line, highlight=False, markup=False)


def _idle(about: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Policies of which the figures say nothing."""
    for row in rows:
        if row.get("gone_share") == 0 and row["policy"] != "full":
            yield (
                f"{row['policy']} took nothing away in the first {about['tokens']:,} tokens:"
                " more --tokens may tell"
            )


def _worst(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Where each policy did most harm."""
    for row in rows:
        if row["failed"] or (worst := row["worst_calls"][0])["gap"] >= 0:
            continue
        yield (
            f"{row['policy']}: worst call: {_call(worst)}, {worst['gap']:+.1f} nats over its"
            f" {worst['tokens']} tokens"
        )


def _hurts(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The spans whose loss hurt most, of all policies."""
    found = [(row["policy"], h) for row in rows for h in row.get("hurt_most", ()) if h["nats"] > 0]
    for policy, hurt in sorted(found, key=lambda pair: -pair[1]["nats"])[:MOST_SHOWN]:
        what = f"{hurt['tool'] or hurt['kind']} of turn {hurt['turn']} ({hurt['tokens']} tokens)"
        yield (
            f"{policy}: giving back the {what} gains {hurt['nats']:.1f} nats, most of them in"
            f" {_call(hurt)}: {hurt['text']}"
        )


def _call(place: Mapping[str, Any]) -> str:
    return f"call {place['call']} of {place['conversation'].rsplit('/', 1)[-1]}"


def _title(about: Mapping[str, Any]) -> str:
    model = about["model"].rstrip("/").rsplit("/", 1)[-1]
    count = about["conversations"]
    noun = "conversation" if count == 1 else "conversations"
    return f"{model}: {count} {noun}, the first {about['tokens']:,} tokens of each"
