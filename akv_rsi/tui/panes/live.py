"""A search while it runs: its curve, its ledger, what is evaluated now, and its log."""

from __future__ import annotations

import os
import signal
import time
from datetime import datetime
from itertools import cycle
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Static

from akv_rsi.insight.progress import accounts, arms, curve, is_held, line, seconds, waiting
from akv_rsi.search.store import owner
from akv_rsi.tui.confirm import Confirm
from akv_rsi.tui.lines import Lines
from akv_rsi.tui.look import name_of, short
from akv_rsi.tui.pane import Pane
from akv_rsi.tui.plot import Plot

_BAR, _MOST = 24, 6
_GRACE_S = 3.0  # for a search that was interrupted
_COLOURS = (33, 166, 65)  # as the archive's plot has them


class LivePane(Pane):
    """Pausing and stopping are signals to the process that writes the run."""

    DEFAULT_CSS = """
    LivePane #ledger { width: 1fr; height: auto; max-height: 12; padding: 0 1; }
    LivePane Plot { width: 1fr; height: 1fr; display: none; }
    LivePane.-wide Plot { display: block; }
    LivePane #left { width: 1fr; }
    """
    HELP = """The search as its store tells it, read once a second while it runs.

The curve is each arm's best policy so far. **space** pauses the search (what the workers have begun
they finish) and lets it go on; **x** stops it safely: nothing recorded is lost, and
`akv-rsi search --resume RUN` continues it."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pause", "Pause/go on"),
        Binding("x", "stop", "Stop safely"),
    ]

    def compose(self) -> ComposeResult:
        """Ledger above the log, the curve beside both."""
        with Horizontal():
            with Vertical(id="left"):
                yield Static(id="ledger", markup=False)
                yield Lines(cursor=False)
            yield Plot()

    def on_resize(self) -> None:
        """The curve needs room."""
        self.set_class(self.size.width >= 120, "-wide")
        self.call_after_refresh(self._plot)

    def show(self) -> None:
        """See `Pane`."""
        run = self.shown.run
        self.tick()
        rows = [
            f"{datetime.fromtimestamp(step.at):%H:%M:%S} {step.seconds:6.1f}s  {line(step)}"
            for step in run.steps
        ]
        lines = self.query_one(Lines)
        lines.fill(len(rows), lambda i, _: Text(rows[i]))
        lines.call_after_refresh(lines.scroll_end, animate=False)
        if not rows:
            lines.say("nothing is recorded yet")
        self._plot()

    def tick(self) -> None:
        """See `Pane`."""
        self.query_one("#ledger", Static).update("\n".join(self._ledger()))

    @property
    def paused(self) -> bool:
        """Whether the search is held."""
        process = owner(self.shown.run.path)
        return process is not None and is_held(process)

    @property
    def parting(self) -> str:
        """See `Pane`."""
        return "The search is paused, and stays so (6 Live, Space)." if self.paused else ""

    def _state(self) -> str:
        run = self.shown.run
        state = "paused" if self.paused else run.state
        steps = f"{state}; {len(run.steps)} steps in {seconds(run):.0f} s"
        if state == "running" and run.steps:
            steps += f", the present one for {time.time() - run.steps[-1].at:.0f} s"
        if state == "stopped":
            steps += f"; go on with akv-rsi search --resume {run.path}"
        return steps

    def _ledger(self) -> list[str]:
        run = self.shown.run
        lines = [self._state()]
        for account in accounts(run):
            bar = "█" * round(_BAR * account.spent / account.limit)
            text = (
                f"{account.arm:<10} {bar:░<{_BAR}} {account.spent:>4} of {account.limit} episodes"
            )
            lines.append(f"{text}, {account.candidates} policies")
        if run.best is not None and (standing := run.standing(run.best)):
            figures = f"{short(standing.accuracy)} at {short(standing.ratio)} of the cost"
            where = f"on {len(standing.ours)} tasks"
            if standing.ratio > run.budget:
                where += "; beyond the budget"
            word = "best" if run.best_id else "best so far"
            lines.append(f"{word}: {name_of(run, run.best)}, {figures} {where}")
        now = [name_of(run, seen) for seen in waiting(run)] if not run.best_id else []
        if now:
            more = f" and {len(now) - _MOST} more" if len(now) > _MOST else ""
            lines.append(f"evaluated now: {', '.join(now[:_MOST])}{more}")
        return lines

    def _plot(self) -> None:
        plot, run = self.query_one(Plot), self.shown.run
        figure = plot.begin()
        colours = dict(zip(arms(run), cycle(_COLOURS)))
        for arm, colour in colours.items():
            points = curve(run, arm)
            figure.plot([p.round for p in points], [p.accuracy for p in points], color=colour)
        figure.title("best accuracy by round")
        plot.end([("━", colour, arm) for arm, colour in colours.items()])

    def _signal(self, *signals: signal.Signals) -> bool:
        """Sends the signals to whoever writes the run; False where nobody does."""
        process = owner(self.shown.run.path)
        if process is None:
            self.notify("No process of this machine is writing this run.")
            return False
        for one in signals:
            os.kill(process, one)
        return True

    def action_pause(self) -> None:
        """Holds the search, or lets it go on."""
        if self._signal(signal.SIGCONT if self.paused else signal.SIGSTOP):
            self.tick()

    def action_stop(self) -> None:
        """Asks first."""
        if owner(self.shown.run.path) is None:
            self.notify("No process of this machine is writing this run.")
        else:
            question = "Stop the search? What it recorded is kept; --resume continues it."
            self.app.push_screen(Confirm(question), self._stop)

    def _stop(self, sure: bool | None) -> None:
        process = owner(self.shown.run.path)
        if sure and self._signal(signal.SIGINT, signal.SIGCONT):
            self.notify("Stopping: what runs now is not waited for.")
            self.set_timer(_GRACE_S, lambda: self._insist(process))

    def _insist(self, process: int | None) -> None:
        """What a script started in the background ignores interrupts; nothing recorded is lost."""
        if process is not None and owner(self.shown.run.path) == process:
            self._signal(signal.SIGTERM)
