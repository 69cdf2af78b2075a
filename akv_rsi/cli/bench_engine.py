"""`akv-rsi bench engine`: how fast the engine is, as ratios measured within one run."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from akv_rsi.cli.output import print_json


def bench_engine(*, rounds: int = 5, seed: int = 0, json: bool = False) -> None:
    """Measure the engine on a CPU, in single precision and bfloat16, on one thread and two.

    The model has SmolLM2-135M's shape and random weights. Decode and prefill are compared with
    transformers' ``generate`` (static cache), the next token after an edit of a long context with
    an ordinary decode step. The arms take turns, so a busy machine spoils times but hardly ratios.

    Args:
        rounds: How often the arms of a comparison take turns.
        seed: Of weights and tokens.
        json: Print the result as JSON.
    """
    from akv_rsi.engine.bench import run

    console = Console(stderr=True)
    found = run.bench_engine(rounds=rounds, seed=seed, say=console.print)
    if json:
        print_json(found)
    else:
        Console().print(_table(found))


def _table(found: dict[str, Any]) -> Table:
    table = Table("", "decode 1", "decode 8", "prefill", "drop / step", "trim / drop")
    table.title, table.title_justify = f"{found['shape']}, seed {found['seed']}", "left"
    for row in found["runs"]:
        ratios = [row["decode_1"], row["decode_8"], row["prefill"]]
        ratios += [row["edits"]["drop_to_step"], row["edits"]["trim_to_drop"]]
        table.add_row(
            f"{row['dtype']}, {row['threads']} threads", *(f"{r['ratio']:.2f}" for r in ratios)
        )
    books = found["metadata"]
    table.caption = (
        f"{books['tokens']} tokens: match {books['match_ms']:.2f} ms, "
        f"drop {books['drop_ms']:.2f} ms, repos {books['repos_ms']:.2f} ms"
    )
    return table
