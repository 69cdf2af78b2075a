"""What the agent said and did under two policies, side by side."""

from __future__ import annotations

from textwrap import wrap
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from akv_rsi.insight.compare import Pair, align, divergence
from akv_rsi.policies.resident import AGENT_KINDS
from akv_rsi.tasks.episode import TaskRef
from akv_rsi.tui.lines import Lines
from akv_rsi.tui.look import name_of, short
from akv_rsi.tui.tasks import TaskPane
from akv_rsi.types import Segment, Trajectory

_GUTTER = 7


class TrajectoryPane(TaskPane):
    """Two columns of messages; a bar marks the first place where they differ."""

    DEFAULT_CSS = """
    TrajectoryPane #names { height: 1; background: $panel; text-style: bold; }
    """
    HELP = """Left the policy, right the one it is compared with, on the same task. Calls are
numbered in the middle margin; **≠** marks where the two part for the first time, and what follows
differs more and more.

Choose the other policy with **m** in the archive."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "divergence", "Parting"),
        Binding("f", "swap", "Swap"),
        Binding("c", "map", "Cache map"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._pairs: list[Pair] = []
        self._lines: list[Text] = []
        self._parting = 0

    def compose(self) -> ComposeResult:
        """Names, and the messages."""
        yield Static(id="names", markup=False)
        yield Lines(cursor=False)

    def show(self) -> None:
        """See `Pane`."""
        shown, lines = self.shown, self.query_one(Lines)
        if shown.task is None:
            self.query_one("#names", Static).update("")
            lines.say(f"No conversation of {shown.policy.label} is kept; choose another policy.")
            return
        lines.say("reading ...")
        self._read(shown.task)

    @work(thread=True, exclusive=True)
    def _read(self, task: TaskRef) -> None:
        shown = self.shown
        ours = shown.run.trajectory(shown.policy, task)
        theirs = shown.run.trajectory(shown.partner, task)
        self.app.call_from_thread(self._loaded, ours, theirs)

    def _loaded(self, ours: Trajectory | None, theirs: Trajectory | None) -> None:
        if ours is None:
            return
        empty = Trajectory(ours.id, (), ())
        self._pairs = align(ours, theirs or empty)
        self._lay_out()
        if theirs is None:
            name = name_of(self.shown.run, self.shown.partner)
            self.notify(f"{name} has no recorded conversation of this task.")

    def on_resize(self) -> None:
        """Lines are wrapped anew."""
        if self._pairs:
            self.call_after_refresh(self._lay_out)

    def _lay_out(self) -> None:
        width = max(10, (self.size.width - _GUTTER - 1) // 2)
        parts = divergence(self._pairs)
        self._lines = []
        for number, pair in enumerate(self._pairs):
            if number == parts:
                self._parting = len(self._lines)
                bar = " ≠ here they part ".center(2 * width + _GUTTER, "─")
                self._lines.append(Text(bar, style="bold red"))
            self._lines += _side_by_side(pair, width)
        lines = self.query_one(Lines)
        lines.fill(len(self._lines), lambda i, _: self._lines[i])
        self.query_one("#names", Static).update(self._names(width))

    def _names(self, width: int) -> str:
        shown, sides = self.shown, []
        for seen in (shown.policy, shown.partner):
            episode = (
                seen.episodes.get(shown.task.split, {}).get(shown.task) if shown.task else None
            )
            name = name_of(shown.run, seen)
            if episode is not None:
                full = shown.run.full.episodes[episode.task.split].get(episode.task)
                ratio = f", cost {short(episode.cost / full.cost)}" if full else ""
                name += f": {'solved' if episode.success else 'FAILED'}{ratio}"
            sides.append(name[:width].ljust(width))
        return (" " * _GUTTER).join(sides)

    def action_divergence(self) -> None:
        """To where they part; it is told when they never do."""
        if divergence(self._pairs) is None:
            self.notify("They say the same throughout.")
        lines = self.query_one(Lines)
        # New lines can be scrolled to once they are laid out.
        lines.call_after_refresh(lines.scroll_to, y=max(0, self._parting - 3), animate=False)

    def action_swap(self) -> None:
        """The other one to the left."""
        shown = self.shown
        self.post_message(self.Look(policy=shown.partner, partner=shown.policy, task=shown.task))

    def action_map(self) -> None:
        """What the left one did to the cache."""
        self.post_message(self.Look(tab="map"))


def _side_by_side(pair: Pair, width: int) -> list[Text]:
    left, right = _wrapped(pair.left, width), _wrapped(pair.right, width)
    segment = pair.left or pair.right
    assert segment is not None
    style = "bold" if segment.kind in AGENT_KINDS else ""
    rows = []
    for i in range(max(len(left), len(right))):
        margin = f" {segment.turn:>3} {' ' if pair.same else '≠'} " if i == 0 else " " * _GUTTER
        texts = [side[i] if i < len(side) else "" for side in (left, right)]
        row = Text(texts[0].ljust(width), style=style)
        row.append(margin.ljust(_GUTTER), "dim" if pair.same else "red")
        row.append(texts[1], style if pair.same else f"{style} red".strip())
        rows.append(row)
    return rows


def _wrapped(segment: Segment | None, width: int) -> list[str]:
    if segment is None:
        return []
    who = {"tool_result": segment.tool or "tool", "tool_call": ">"}.get(segment.kind, segment.kind)
    return wrap(f"{who} {segment.text}", width) or [who]
