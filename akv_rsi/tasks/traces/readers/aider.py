"""aider: the chat history it keeps in Markdown, many sessions in one file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from akv_rsi.tasks.traces.content import recorded
from akv_rsi.tasks.traces.events import Asked, Began, Event, Noted, Recorded, Said, Skipped
from akv_rsi.tasks.traces.source import Head, Source

_SESSION = "# aider chat started at "
_TOKENS = re.compile(r"> Tokens: (.*?) received")
_AMOUNT = re.compile(r"([\d.,]+)(k?) (sent|cache write|cache hit|received)")
_NOTICE = re.compile(
    r"> *(/\S*aider|Aider v|Models?:|Main model|Weak model|Editor model|Git repo|Repo-map|Use /help"
    r"|VSCode|Added |Add |Removed |Creat|Applied edit|Commit |You can use /undo|Tokens:|Cost:"
    r"|\^C|https?://|Warning|Newer|Restored|Scraping|Skipping|No changes|Diff|$)"
)


class Aider:
    """``#### `` lines are the user's, plain ones the model's, ``> `` ones the program's.

    A line of token counts ends a call. The system prompt, the files and the repository map are in
    every prompt and never stored. The program's lines mix notices with the output of commands,
    linters and tests; only known notices are taken for such.
    """

    name = "aider"

    def detect(self, head: Head) -> bool:
        """See `Reader`."""
        return _SESSION in head.text and not head.lines

    def read(self, source: Source) -> Iterator[Event]:
        """See `Reader`."""
        session, sessions = _Session(), 0
        yield Began("before")
        for _, line in source.lines():
            if line.startswith(_SESSION):
                yield from session.end()
                yield Began(f"{sessions} {line[len(_SESSION) :].strip()}")
                yield Noted("files_and_repo_map_missing")
                session, sessions = _Session(), sessions + 1
            else:
                yield from session.line(line)
        yield from session.end()


class _Session:
    """Gathers lines of one kind until another kind follows."""

    def __init__(self) -> None:
        self._kind = ""
        self._lines: list[str] = []
        self._answered = False

    def line(self, line: str) -> Iterator[Event]:
        """Takes one line."""
        if tokens := _TOKENS.match(line):
            yield from self._answer(_usage(tokens.group(1) + " received"))
            return
        if line.startswith("#### ") or line.rstrip() == "####":
            kind, text = "user", line[5:].rstrip()
        elif line.startswith("> ") or line.rstrip() == ">":
            kind = "notice" if _NOTICE.match(line) else "tool_result"
            text = line[1:].removeprefix(" ").rstrip()
        else:
            kind, text = "assistant", line
        if kind == "assistant" and not text.strip() and self._kind != "assistant":
            return
        if kind != self._kind:
            yield from self.end()
            self._kind = kind
        self._lines.append(text)

    def end(self) -> Iterator[Event]:
        """What was gathered is complete."""
        kind, lines = self._kind, self._lines
        self._kind, self._lines = "", []
        text = "\n".join(lines).strip()
        if not text:
            return
        if kind == "assistant":
            if not self._answered:
                yield Asked()
            yield Said("assistant", text)
        elif kind == "user":
            commands = [line for line in lines if line.startswith("/")]
            if commands:
                yield Skipped("slash commands", sum(map(len, commands)), len(commands))
            if rest := "\n".join(line for line in lines if not line.startswith("/")).strip():
                yield Said("user", rest)
        elif kind == "tool_result":
            yield Said("tool_result", text)
        else:
            yield Skipped("notices of the program", len(text), len(lines))

    def _answer(self, usage: Recorded | None) -> Iterator[Event]:
        """A call is complete: what was gathered is its answer, empty if it is not the model's."""
        if self._kind != "assistant":
            yield from self.end()
        yield Asked(recorded=usage)
        self._answered = True
        yield from self.end()
        self._answered = False


def _usage(text: str) -> Recorded | None:
    amounts: dict[str, int] = {}
    for number, thousands, what in _AMOUNT.findall(text):
        try:
            amounts[what] = int(float(number.replace(",", "")) * (1000 if thousands else 1))
        except ValueError:
            return None
    sent, read = amounts.get("sent", 0), amounts.get("cache hit")
    prompt = sent + amounts.get("cache write", 0) + (read or 0)
    return recorded(prompt, amounts.get("received", 0), read) if prompt else None
