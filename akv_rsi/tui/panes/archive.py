"""The archive: every candidate in a table, and accuracy over cost beside it."""

from __future__ import annotations

from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.timer import Timer
from textual.widgets import Input, Static

from akv_rsi.insight.seen import SPLITS, Seen, Standing
from akv_rsi.search.candidate import Score
from akv_rsi.tasks.episode import Split
from akv_rsi.tui.columns import columns
from akv_rsi.tui.lines import Lines
from akv_rsi.tui.look import name_of, short, spread, verdict
from akv_rsi.tui.pane import Pane
from akv_rsi.tui.pareto import Pareto
from akv_rsi.tui.table import Table

WIDE = 120
_REST = 0.12  # seconds
_EMPTY = "no policy has been run yet on these tasks; with a running search: inspect --follow"


class ArchivePane(Pane):
    """Sort, filter, choose."""

    DEFAULT_CSS = """
    ArchivePane Table { width: 2fr; }
    ArchivePane Pareto { width: 1fr; display: none; }
    ArchivePane.-wide Pareto { display: block; }
    ArchivePane.-plot Pareto { display: block; width: 1fr; }
    ArchivePane.-plot Table { display: none; }
    ArchivePane #about { height: 3; padding: 0 1; background: $panel; }
    ArchivePane Input { display: none; }
    ArchivePane.-filter Input { display: block; }
    """
    HELP = """Every policy the search ran, and with **a** those it only screened.

*acc* is the share of tasks solved, *cost* the cost as a share of keeping everything, with 95%
intervals. **n** tasks were run: few tasks prove little. The dotted line of the plot joins the
policies that no other beats in both."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort", "Sort"),
        Binding("r", "reverse", "Reverse", show=False),
        Binding("slash", "filter", "Filter"),
        Binding("a", "all", "All"),
        Binding("v", "split", "Split"),
        Binding("p", "plot", "Plot"),
        Binding("m", "mark", "Compare"),
        Binding("escape", "clear", "Clear the filter", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.split: Split = "train"
        self.everything = False
        self.needle = ""
        self._wanted: dict[tuple[str, Split], Standing] = {}
        self._plotting: Timer | None = None

    def compose(self) -> ComposeResult:
        """Table and plot, a line about the selected policy, and the filter."""
        with Horizontal():
            yield Table[Seen](
                columns(self._label, self._standing, self._known, self.shown.run.budget), sort="acc"
            )
            yield Pareto()
        yield Static(id="about", markup=False)
        yield Input(placeholder="words that its id, origin, fate or source must contain")

    def on_resize(self) -> None:
        """The plot needs room beside the table."""
        self.set_class(self.size.width >= WIDE, "-wide")

    def show(self) -> None:
        """See `Pane`."""
        rows = [seen for seen in self._rows() if self._matches(seen)]
        table = self.query_one(Table)
        table.fill(rows, self.shown.policy)
        if not rows:
            table.lines.say("nothing matches the filter" if self.needle else _EMPTY)
        self.call_after_refresh(self.looked)

    def looked(self) -> None:
        """See `Pane`."""
        self._about()
        if self._plotting is not None:
            self._plotting.stop()
        # A plot takes as long as many lines do: it waits until the cursor rests.
        self._plotting = self.set_timer(_REST, self._plot)

    def _plot(self) -> None:
        plot = self.query_one(Pareto)
        if plot.display:
            plot.draw(self.shown.run, self.query_one(Table).rows, self.split, self.shown.policy)

    def _rows(self) -> list[Seen]:
        run = self.shown.run
        every = run.policies.values()
        return [s for s in every if self.everything or self._standing(s) is not None]

    def _matches(self, seen: Seen) -> bool:
        text = f"{seen.label} {seen.id} {seen.origin} {seen.candidate.operator} {seen.fate}"
        text = f"{text} {seen.spec.source}".lower()
        return all(word in text for word in self.needle.lower().split())

    def _standing(self, seen: Seen) -> Standing | None:
        return self.shown.run.standing(seen, self.split)

    def _known(self, seen: Seen) -> Score | None:
        """Its intervals. They take a while: what is not known is asked for, and drawn later."""
        standing = self._standing(seen)
        if standing is None:
            return None
        if standing.known is None:
            if not self._wanted:
                self.call_after_refresh(lambda: self._estimate([*self._wanted.values()]))
            self._wanted[seen.id, self.split] = standing
        return standing.known

    @work(thread=True)
    def _estimate(self, wanted: list[Standing]) -> None:
        for standing in wanted:
            _ = standing.score
        self.app.call_from_thread(self._estimated)

    def _estimated(self) -> None:
        self._wanted.clear()  # what came in meanwhile is asked for again as it is drawn
        self.query_one(Lines).renew()
        self._about()

    def _label(self, seen: Seen) -> str:
        mark = "= " if seen is self.shown.partner else "  "
        if seen.id == self.shown.run.best_id:
            mark = "★ "
        return mark + name_of(self.shown.run, seen)

    def _about(self) -> None:
        seen, run = self.shown.policy, self.shown.run
        standing = self._standing(seen)
        shown = len(self.query_one(Table).rows)
        every = f"{shown} of {len(run.policies)} policies, {self.split} tasks"
        if self.needle:
            every += f', filter "{self.needle}"'
        if standing is None:
            told = f"{seen.label}: {seen.fate or 'not run on these tasks'}"
        elif (score := self._known(seen)) is None:
            accuracy, ratio = short(standing.accuracy), short(standing.ratio)
            told = f"{seen.label}: accuracy {accuracy}, cost {ratio}"
        else:
            told = (
                f"{seen.label}: accuracy {short(score.accuracy.estimate)} "
                f"({spread(score.accuracy)}), cost {short(score.cost_ratio.estimate)} "
                f"({spread(score.cost_ratio)}) on {score.n} tasks, {verdict(score, run.budget)}; "
                f"{score.kv_read_share:.0%} of it for reading the cache"
            )
        self.query_one("#about", Static).update(f"{told}\n{every}")

    @on(Lines.Moved)
    def select(self, event: Lines.Moved) -> None:
        """The line under the cursor is what is looked at."""
        event.stop()
        rows = self.query_one(Table).rows
        if event.index < len(rows):
            self.post_message(self.Look(policy=rows[event.index]))

    @on(Lines.Chosen)
    def open(self, event: Lines.Chosen) -> None:
        """Its source."""
        event.stop()
        rows = self.query_one(Table).rows
        if event.index < len(rows):
            self.post_message(self.Look(policy=rows[event.index], tab="policy"))

    @on(Input.Changed)
    def narrow(self, event: Input.Changed) -> None:
        """As the filter is typed."""
        self.needle = event.value
        self.show()

    @on(Input.Submitted)
    def narrowed(self) -> None:
        """Back to the table."""
        self.set_class(False, "-filter")
        self.query_one(Lines).focus()

    def action_sort(self) -> None:
        """By the next column."""
        self.query_one(Table).next_sort()

    def action_reverse(self) -> None:
        """The other way round."""
        table = self.query_one(Table)
        table.sort_by(table.sort)

    def action_filter(self) -> None:
        """Opens the filter."""
        self.set_class(True, "-filter")
        self.query_one(Input).focus()

    def action_clear(self) -> None:
        """Takes the filter away."""
        self.query_one(Input).value = ""
        self.narrowed()

    def action_all(self) -> None:
        """With those that were only screened, or without."""
        self.everything = not self.everything
        self.show()

    def action_split(self) -> None:
        """Train, validation or test."""
        self.split = SPLITS[(SPLITS.index(self.split) + 1) % len(SPLITS)]
        self.show()

    def action_plot(self) -> None:
        """The plot alone, or the table."""
        self.toggle_class("-plot")
        self.call_after_refresh(self.looked)

    def action_mark(self) -> None:
        """Compare others with this one."""
        self.post_message(self.Look(partner=self.shown.policy))
        self.query_one(Lines).renew()
