"""`akv-rsi audit`: what recorded transcripts cost, what they lost, what policies would save."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from akv_rsi.cli.audit_tables import show
from akv_rsi.cli.names import policy_named
from akv_rsi.cli.output import print_json
from akv_rsi.errors import ConfigError
from akv_rsi.pages.audit import page
from akv_rsi.policies import library
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.tasks.traces.audit import AuditConfig, Sampled, TraceAudit
from akv_rsi.tasks.traces.draft import Options
from akv_rsi.tasks.traces.overall import CLAIM_POLICIES
from akv_rsi.tasks.traces.provider import load_tariff
from akv_rsi.tasks.traces.read import Reading, find_files
from akv_rsi.tasks.traces.replays import Replayer
from akv_rsi.tasks.traces.report import Report

# A segment is looked at by each call after it: more text than this cannot be looked at.
_TEXTS_PER_WORK = 0.2


def audit(
    *paths: str,
    prices: str = "claude",
    policy: tuple[str, ...] = (),
    span: int = 48_000,
    summary_tokens: int = 1000,
    work: int = 100_000,
    sample: int = 300,
    format_name: Annotated[str | None, Parameter(name="--format")] = None,
    tokenizer: str | None = None,
    redact: bool = False,
    json: bool = False,
    html: str | None = None,
) -> None:
    """Audit recorded transcripts: their make-up, cost, cache misses, and what policies would save.

    Formats are recognised: SWE-agent, mini-swe-agent, OpenHands, Claude Code, Codex, OpenAI
    (responses, chat, tau-bench), Anthropic messages, General-AgentBench, aider, Gemini CLI, Kimi
    CLI, OpenTelemetry. Nothing leaves this machine, and no model is needed.

    Args:
        paths: Files, or folders that hold them.
        prices: claude, deepseek, gpt, gpu, or a .json file (with cache rules under "cache").
        policy: A policy to cost, such as rolling_drop:keep=3, or a file; may be repeated.
            Default: the library.
        span: The reliable span policies are told, in tokens; text edits begin there.
        summary_tokens: How long a summary is taken to be.
        work: How much of each trace policies are replayed on: segments, summed over calls. 0 costs
            no policies.
        sample: On how many conversations policies are replayed at most, spread evenly. 0: on all.
        format_name: Read every file in this format instead of recognising it.
        tokenizer: A tokenizer.json to count tokens with, instead of estimating from characters.
        redact: Leave all text of the transcripts out of the report (keys and passwords always are).
        json: Print the result as JSON.
        html: Write a page with plots to this file.
    """
    if span < 1 or summary_tokens < 1:
        raise ConfigError("--span and --summary-tokens must be at least 1")
    if work < 0 or sample < 0:
        raise ConfigError("--work and --sample must be at least 0")
    tariff, policies = load_tariff(prices), _policies(policy)
    config = AuditConfig(tariff, policies, span, summary_tokens, work, sample)
    if html is not None and not Path(html).absolute().parent.is_dir():
        raise ConfigError(f"the folder of {html} does not exist")
    options = Options(_measure(tokenizer), texts=max(64, int(work * _TEXTS_PER_WORK)))
    reading = Reading(find_files(paths), options, format_name)
    audits = _audit(reading, config)
    if not audits:
        first = next((p.why for f in reading.files for p in f.problems), "it is empty")
        raise ConfigError(f"no transcript in {', '.join(paths)} ({reading.files[0].path}: {first})")
    report = Report(audits, reading.files, config, redact).to_json()
    if html is not None:
        _write(html, page(report))
    if json:
        print_json(report)
    else:
        show(report, Console())


def _policies(names: Sequence[str]) -> dict[str, PolicySpec]:
    chosen = names or (*library.names(), *CLAIM_POLICIES)
    return {name: policy_named(name, oracle=False) for name in chosen}


def _audit(reading: Reading, config: AuditConfig) -> list[TraceAudit]:
    """Audits one conversation after the other; only their audits stay in memory."""
    total = sum(path.stat().st_size for path in reading.paths)
    bar = Progress(
        TextColumn("audit"),
        BarColumn(),
        DownloadColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
    with bar, Replayer(list(config.policies.values()), config.setting) as replayer:
        sampled = Sampled(config, replayer)
        task = bar.add_task("", total=total)
        for trace in reading:
            sampled.take(trace)
            bar.update(task, completed=sum(file.bytes for file in reading.files[:-1]))
        bar.update(task, completed=total)
    return sampled.audits


def _measure(tokenizer: str | None) -> Callable[[str], int] | None:
    if tokenizer is None:
        return None
    from tokenizers import Tokenizer

    if not Path(tokenizer).is_file():
        raise ConfigError(f"the tokenizer {tokenizer} does not exist")
    try:
        loaded = Tokenizer.from_file(tokenizer)
    except Exception as error:  # the library raises nothing narrower
        raise ConfigError(f"{tokenizer} is no tokenizer.json: {error}") from error
    return lambda text: len(loaded.encode(text, add_special_tokens=False).ids)


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
