"""A policy that is being edited, and how what came of it is told."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rich.text import Text

from akv_rsi.errors import LintError
from akv_rsi.insight.trial import Contender, Trial
from akv_rsi.policies.lint import lint
from akv_rsi.tasks.stats import Interval
from akv_rsi.tui.look import short

_BAR, _MOST_NAMES = 24, 4
_PROBLEM = re.compile(r"^(?:line (\d+): )?(.*)$", re.DOTALL)


@dataclass
class Draft:
    """A policy's source as it ran (``start``) and as it stands now.

    ``trial`` is the last one, of the text ``tried``, or ``failure`` says why there was none.
    """

    identity: str
    label: str
    start: str
    text: str = ""
    saved: str = ""
    tried: str = ""
    on: str = ""
    trial: Trial | None = None
    failure: str = ""

    def __post_init__(self) -> None:
        self.text = self.saved = self.start

    @property
    def changed(self) -> bool:
        """Whether it differs from what ran."""
        return self.text != self.start

    @property
    def unsaved(self) -> bool:
        """Whether it is in no file."""
        return self.text not in (self.start, self.saved)


def problems_of(source: str) -> list[tuple[int, str]]:
    """What the lint has against ``source``: lines, counted from 1, and words."""
    try:
        lint(source)
    except LintError as error:
        found = [_PROBLEM.match(part) for part in re.split(r"; (?=line \d+: )", str(error))]
        return [(int(match[1] or 1), match[2]) for match in found if match]
    return []


def progress(done: int, of: int) -> Text:
    """How far a trial is."""
    if not of:
        return Text(" starting the evaluation ... Ctrl+T cancels it", "italic")
    bar = "█" * round(_BAR * done / of)
    return Text(f" {bar:░<{_BAR}} {done} of {of} episodes; Ctrl+T cancels")


def told(draft: Draft) -> list[Text]:
    """The lines about the last trial; none where there was none."""
    lines: list[Text] = []
    if draft.tried and draft.tried != draft.text:
        lines.append(Text(" Of the text before your last change:", "italic"))
    if draft.failure:
        lines.append(Text(f" {draft.failure}", "red"))
    if draft.trial is not None:
        lines += _result(draft.trial, draft.on)
    return lines


def _result(trial: Trial, on: str) -> list[Text]:
    gap, cost = trial.accuracy, trial.cost
    style = {"better": "bold green", "worse": "bold red"}.get(gap.verdict, "bold")
    signed = (
        f"{gap.difference.estimate:+.3f} [{gap.difference.low:+.2f} {gap.difference.high:+.2f}]"
    )
    lines = [
        Text(" edited - original: solved ").append(f"{signed}, {gap.verdict}", style),
        Text(f" edited / original: cost   {_limits(cost)}"),
    ]
    for word, tasks in (("won", trial.won), ("lost", trial.lost)):
        if tasks:
            more = f" and {len(tasks) - _MOST_NAMES} more" if len(tasks) > _MOST_NAMES else ""
            lines.append(Text(f" {word}: {', '.join(tasks[:_MOST_NAMES])}{more}"))
    if trial.problem:
        lines.append(Text(f" the edited policy failed: {trial.problem}", "red"))
    if trial.excluded:
        lines.append(Text(f" {trial.excluded} tasks could not be run", "red"))
    head = f" {f'{trial.n} {on}':<18}{'solved':<18}cost of keeping everything"
    return [*lines, Text(head, "bold"), *map(_row, trial.contenders)]


def _row(one: Contender) -> Text:
    return Text(f" {one.name:<18}{_limits(one.accuracy):<18}{_limits(one.cost_ratio)}")


def _limits(value: Interval) -> str:
    return f"{short(value.estimate)} [{short(value.low)} {short(value.high)}]"
