"""`akv-rsi recall`: what cache operations and text edits do to a model's memory of facts."""

from __future__ import annotations

from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from akv_rsi.cli.names import policy_named
from akv_rsi.cli.output import interval, print_json
from akv_rsi.config import EngineConfig
from akv_rsi.errors import ConfigError
from akv_rsi.tasks.load import find_model, load_engine
from akv_rsi.tasks.recall.attention import attending, stock_mass
from akv_rsi.tasks.recall.measure import measure
from akv_rsi.tasks.recall.policy import by_policy
from akv_rsi.tasks.recall.table import FULL, rows
from akv_rsi.tasks.recall.variants import STUDY, VARIANTS, dropping


def recall(
    *,
    model: str,
    length: tuple[int, ...] = (1000, 2000),
    questions: int = 100,
    variant: tuple[str, ...] = (),
    lead: bool = False,
    study: bool = False,
    policy: tuple[str, ...] = (),
    pages: int = 2048,
    device: Literal["cpu", "cuda"] = "cpu",
    json: bool = False,
) -> None:
    """Ask a model for facts of long transcripts, under cache operations and text edits.

    Facts that the agent restated in a note are asked for after the tools' results are gone; the
    log-probability of the right answer is compared with keeping everything, question by question.

    Args:
        model: A folder with a model, a .gguf file, or a hub id.
        length: About how many tokens a transcript has; may be repeated.
        questions: How many questions about noted facts a cell has at least.
        variant: Only this one (beside full); may be repeated. Default: all.
        lead: Begin the answers with "The code of the ... is": small models put words first.
        study: Also refresh parts of the notes only, and everything behind the dropped results.
        policy: A policy that decides before each call, such as rolling_drop:keep=1, or a file; one
            more row; may be repeated.
        pages: Pages of 16 tokens the engine may use.
        device: Where the model runs, in single precision.
        json: Print the result as JSON.
    """
    every = VARIANTS | (STUDY if study else {})
    folder, chat = find_model(model)
    if study:
        every["refresh most attending"] = dropping(attending(stock_mass(folder)))
    if unknown := sorted(set(variant) - set(every)):
        raise ConfigError(f"unknown variants {', '.join(unknown)}: use {', '.join(every)}")
    if questions < 2 or any(tokens < 100 for tokens in length):
        raise ConfigError("--questions must be at least 2, --length at least 100")
    chosen = {name: every[name] for name in every if not variant or name in (FULL, *variant)}
    chosen |= {name: by_policy(policy_named(name, oracle=False)) for name in policy}
    config = EngineConfig(pages=pages, working_set_mib=0, device=device)
    engine, console = load_engine(folder, config), Console(stderr=True)
    tables = {}
    for tokens in length:
        cells = measure(engine, chat, chosen, tokens, questions, lead, console.print)
        tables[tokens] = rows(cells)
        if not json:
            Console().print(_table(tokens, tables[tokens]))
    if json:
        print_json({"model": model, "lengths": tables})


def _table(tokens: int, found: list[dict[str, Any]]) -> Table:
    table = Table(title=f"{tokens} tokens: facts that were noted", title_justify="left")
    names = ("variant", "n", "attended", "prefilled", "exact", "log-probability", "to full")
    for name in (*names, "only in results: to full"):
        table.add_column(name, justify="left" if name == "variant" else "right")
    for row in found:
        other = row["unnoted"].get("gap")
        table.add_row(
            row["variant"],
            str(row["questions"]),
            f"{row['attended']:.0f}",
            f"{row['prefilled']:.0f}",
            *(interval(tuple(row[key].values())) for key in ("exact", "likely")),
            interval(tuple(row["gap"].values()), "+"),
            "-" if other is None else interval(tuple(other.values()), "+"),
        )
    table.caption = "nats, summed over an answer's tokens; intervals resample records"
    return table
