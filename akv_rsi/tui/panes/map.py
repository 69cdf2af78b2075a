"""The cache map of one task: what each call read, computed, moved and lost, and why."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.widgets import Static

from akv_rsi.errors import AkvError
from akv_rsi.insight.cachemap import CacheMap, State, cache_map
from akv_rsi.insight.causes import Behind, rules_behind
from akv_rsi.insight.story import cell_story, deciding_call
from akv_rsi.tasks.episode import TaskRef
from akv_rsi.tui.look import palette
from akv_rsi.tui.mapgrid import MapGrid
from akv_rsi.tui.plot import Plot
from akv_rsi.tui.tasks import TaskPane

_LEGEND = {
    State.COMPUTED: "computed",
    State.KEPT: "cached",
    State.MOVED: "repositioned",
    State.REFRESHED: "refreshed",
    State.RESTORED: "restored",
    State.DROPPED: "dropped",
    State.GONE: "gone",
}


_SEEN, _SPAN = 33, 166


class MapPane(TaskPane):
    """A grid, what is known of the cell under the cursor, and two curves."""

    DEFAULT_CSS = """
    MapPane #body { layout: vertical; height: 1fr; }
    MapPane.-wide #body { layout: horizontal; }
    MapPane #grid { height: 1fr; width: 1fr; }
    MapPane.-wide #grid { width: 3fr; height: 100%; }
    MapPane #head { height: 1; text-style: bold; background: $panel; }
    MapPane #legend { height: 1; }
    MapPane #side { height: 7; background: $panel; }
    MapPane.-wide #side { width: 1fr; height: 100%; }
    MapPane #story { height: 1fr; padding: 0 1; }
    MapPane Plot { height: 17; display: none; }
    MapPane.-wide Plot { display: block; }
    """
    HELP = """A row for each call, a column for each segment of the conversation (**s**ystem,
**u**ser, tool **c**all, tool **r**esult, **a**ssistant).

*seen* counts the tokens the call attends to, *span* is the position its answer begins at. For the
cell under the cursor: the text, the source line that dropped it, and whether it was needed later.
*LOST* are words the agent wrote although nothing it could see held them. A half block is a segment
of which only a part is visible."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "play", "Play"),
        Binding("x", "drop", "Drop"),
        Binding("f", "swap", "Swap"),
        Binding("y", "trajectory", "Trajectory"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._map: CacheMap | None = None
        self._oracle: CacheMap | None = None
        self._rules: list[Behind] | str = "looking for the rules behind it ..."

    def compose(self) -> ComposeResult:
        """Grid and legend, story and curves."""
        with Container(id="body"):
            with Vertical(id="grid"):
                yield Static(id="head", markup=False)
                yield MapGrid()
                yield Static(id="legend")
            with Vertical(id="side"):
                yield Static(id="story", markup=False)
                yield Plot()

    def on_mount(self) -> None:
        """Plays at about three calls a second when it is asked to."""
        self._timer = self.set_interval(0.3, self._tick, pause=True)

    def on_resize(self) -> None:
        """The story stands below, or beside."""
        self.set_class(self.size.width >= 120, "-wide")
        self.call_after_refresh(self._heading)

    def show(self) -> None:
        """See `Pane`."""
        shown = self.shown
        if shown.task is None:
            self._map = None
            self._say(
                f"No conversation of {shown.policy.label} is kept: only those of finalists, of "
                "keeping everything and of the sealed test are. Choose another policy in 1 Archive "
                "(★ marks the best)."
            )
            return
        self._say("reading ...")
        self._read(shown.task)

    @work(thread=True, exclusive=True)
    def _read(self, task: TaskRef) -> None:
        run, policy = self.shown.run, self.shown.policy
        maps = [
            cache_map(trajectory, run.prices)
            for seen in (policy, run.oracle)
            if (trajectory := run.trajectory(seen, task))
        ]
        self.app.call_from_thread(self._loaded, maps[0], maps[1] if len(maps) > 1 else None)

    def _loaded(self, shown: CacheMap, oracle: CacheMap | None) -> None:
        self._map, self._oracle = shown, oracle
        self._rules = "looking for the rules behind it ..."
        grid = self.query_one(MapGrid)
        grid.fill(shown)
        if not shown.cells:
            self._say(
                f"{self.shown.policy.label} edits the text itself: what it took out left no trace."
            )
            return
        legend, styles = Text(), palette(self.dark)
        for state, word in _LEGEND.items():
            legend.append(state.value, styles[state]).append(f" {word} ")
        self.query_one("#legend", Static).update(legend)
        self._curves()
        self._ask(shown)
        grid.place(grid.row, grid.column)

    def _say(self, text: str) -> None:
        self.query_one("#story", Static).update(text)
        self.query_one("#head", Static).update("")
        if self._map is None:
            self.query_one(MapGrid).map = None
            self.query_one(MapGrid).refresh()

    def _heading(self) -> None:
        self.query_one("#head", Static).update(self.query_one(MapGrid).head())

    def _curves(self) -> None:
        assert self._map is not None
        plot, turns = self.query_one(Plot), self._map.turns
        figure = plot.begin()
        rows = [turn.number for turn in turns]
        figure.plot(rows, [turn.attended for turn in turns], color=_SEEN)
        figure.plot(rows, [turn.span for turn in turns], color=_SPAN)
        figure.xlabel("call")
        plot.end([("━", _SEEN, "tokens seen"), ("━", _SPAN, "position span")])

    @on(MapGrid.Moved)
    def _tell(self) -> None:
        self._heading()
        grid = self.query_one(MapGrid)
        if self._map is None or not self._map.cells:
            return
        call = deciding_call(self._map, grid.row, grid.column)
        rules: Behind = {}
        if isinstance(self._rules, list) and call is not None:
            rules = self._rules[call]
        lines = cell_story(self._map, self._oracle, grid.row, grid.column, rules)
        if isinstance(self._rules, str) and call is not None:
            lines.insert(2, self._rules)
        self.query_one("#story", Static).update("\n".join(lines))

    @work(thread=True, exclusive=True, group="rules")
    def _ask(self, shown: CacheMap) -> None:
        """Which rules decided; what cannot be told is told."""
        rules: list[Behind] | str
        try:
            rules = rules_behind(self.shown.policy.spec, shown, self.shown.run.setting())
        except AkvError as error:
            rules = f"by which rule cannot be told: {error}"
        self.app.call_from_thread(self._asked, shown, rules)

    def _asked(self, shown: CacheMap, rules: list[Behind] | str) -> None:
        if shown is self._map:
            self._rules = rules
            self._tell()

    def _tick(self) -> None:
        grid = self.query_one(MapGrid)
        if self._map is None or grid.row + 1 >= len(self._map.cells):
            self.action_play()
        else:
            grid.place(grid.row + 1, grid.column)

    def action_play(self) -> None:
        """Starts, from the beginning if it stands at the end; or stops."""
        grid = self.query_one(MapGrid)
        if self._map is None or not self._map.cells:
            return
        if not grid.playing and grid.row + 1 >= len(self._map.cells):
            grid.place(0, grid.column)
        grid.playing = not grid.playing
        (self._timer.resume if grid.playing else self._timer.pause)()
        grid.refresh()

    def action_drop(self) -> None:
        """To the next segment that is dropped, in the order of calls."""
        grid = self.query_one(MapGrid)
        if self._map is None:
            return
        cells = [
            (row, column)
            for row, cells in enumerate(self._map.cells)
            for column, cell in enumerate(cells)
            if cell.state is State.DROPPED
        ]
        after = [place for place in cells if place > (grid.row, grid.column)]
        if cells:
            grid.place(*(after or cells)[0])

    def action_swap(self) -> None:
        """The same task under the policy it is compared with."""
        shown = self.shown
        self.post_message(self.Look(policy=shown.partner, partner=shown.policy, task=shown.task))

    def action_trajectory(self) -> None:
        """What was said, beside the other policy's."""
        self.post_message(self.Look(tab="trajectory"))
