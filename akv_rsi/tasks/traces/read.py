"""Finds transcripts, recognises their format and reads them, one conversation at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from akv_rsi.errors import ConfigError
from akv_rsi.tasks.traces.assemble import Assembler
from akv_rsi.tasks.traces.draft import Options
from akv_rsi.tasks.traces.readers import READERS, Reader
from akv_rsi.tasks.traces.source import Problem, Source
from akv_rsi.tasks.traces.trace import Trace


@dataclass(slots=True)
class FileReport:
    """What came of one file. ``format`` is None where no reader knows it.

    ``problems`` are the first ones; ``total_problems`` counts all.
    """

    path: str
    format: str | None
    bytes: int
    traces: int = 0
    calls: int = 0
    problems: list[Problem] = field(default_factory=list)
    total_problems: int = 0


MOST_TOLD = 20


def troubles(files: Sequence[FileReport]) -> list[str]:
    """What of ``files`` could not be read, in lines for people: the first of each file."""
    hit = [file for file in files if file.problems]
    lines = []
    for file in hit[:MOST_TOLD]:
        first, more = file.problems[0], file.total_problems - 1
        place = f"{file.path}:{first.line}" if first.line else file.path
        lines.append(f"{place}: {first.why}{f', and {more:,} more' if more else ''}")
    if len(hit) > MOST_TOLD:
        lines.append(f"and {len(hit) - MOST_TOLD:,} more files: see `akv-rsi audit`")
    return lines


def find_files(paths: Sequence[str | Path]) -> list[Path]:
    """The files that ``paths`` name, and those in the folders they name, sorted, hidden ones aside.

    `ConfigError` when a path does not exist, or when there is no file at all.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = (p for p in path.rglob("*") if p.is_file())
            parts = ((p, p.relative_to(path).parts) for p in inside)
            files.extend(sorted(p for p, names in parts if not _hidden(names)))
        elif path.exists():
            files.append(path)
        else:
            raise ConfigError(f"{path} does not exist")
    if not files:
        raise ConfigError(f"no files in {', '.join(map(str, paths)) or 'no path at all'}")
    return list(dict.fromkeys(files))


def _hidden(names: Iterable[str]) -> bool:
    return any(name.startswith(".") for name in names)


def detect(path: str | Path) -> Reader | None:
    """The reader of a file, judged by its head and its tail; None when no format fits."""
    head = Source(Path(path)).head()
    return next((reader for reader in READERS if reader.detect(head)), None)


class Reading:
    """Reads files; iterate over it once. ``files`` grows with each file that was read."""

    def __init__(
        self, files: Sequence[Path], options: Options | None = None, format_name: str | None = None
    ) -> None:
        self.files: list[FileReport] = []
        self.paths = files
        self._options = options or Options()
        self._reader = reader_named(format_name) if format_name else None

    def __iter__(self) -> Iterator[Trace]:
        for path in self.paths:
            yield from self._read(path)

    def _read(self, path: Path) -> Iterator[Trace]:
        report = FileReport(str(path), None, 0)
        self.files.append(report)
        try:
            report.bytes = path.stat().st_size
            source = Source(path)
            reader = self._reader or detect(path)
        except OSError as error:
            report.problems.append(Problem(0, f"it cannot be read: {error.strerror}"))
            report.total_problems = 1
            return
        if not report.bytes or reader is None:
            why = "no reader knows this format" if report.bytes else "it is empty"
            report.problems.append(Problem(0, why))
            report.total_problems = 1
            return
        report.format = reader.name
        for trace in read_source(source, reader, self._options):
            report.traces += 1
            report.calls += trace.calls
            yield trace
        if not report.traces:
            source.problems.add(0, "it holds no conversation")
        report.problems = source.problems.first
        report.total_problems = source.problems.total


def read_source(source: Source, reader: Reader, options: Options | None = None) -> Iterator[Trace]:
    """The conversations in one file, each as soon as it is complete; empty ones are left out."""
    assembler = Assembler(str(source.path), reader.name, options)
    for event in reader.read(source):
        yield from (trace for trace in assembler.feed(event) if _has_content(trace))
    yield from (trace for trace in assembler.close() if _has_content(trace))


def _has_content(trace: Trace) -> bool:
    return any(context.pieces or context.steps for context in trace.contexts)


def reader_named(name: str) -> Reader:
    """The reader of that format; `ConfigError` when there is none."""
    for reader in READERS:
        if reader.name == name:
            return reader
    raise ConfigError(
        f"unknown format {name!r}: use one of {', '.join(reader.name for reader in READERS)}"
    )
