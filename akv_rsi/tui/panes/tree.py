"""The radix tree of a task: what its recorded conversations share."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from akv_rsi.insight.tree import Edge, described, tree_of
from akv_rsi.tasks.episode import TaskRef
from akv_rsi.tui.lines import Lines
from akv_rsi.tui.look import name_of
from akv_rsi.tui.tasks import TaskPane
from akv_rsi.types import Segment

_MOST_NAMES = 3
_SOURCE = "(derived from the record, as if nothing had been evicted)"


class TreePane(TaskPane):
    """One line an edge; the messages of the edge under the cursor below."""

    DEFAULT_CSS = """
    TreePane #head { height: 1; background: $panel; text-style: bold; }
    TreePane #edge { height: 7; background: $panel; padding: 0 1; }
    """
    HELP = """The conversations that were recorded on this task, as the cache holds them: a path
spells messages and ops, and policies share an edge as long as both are equal.

*slots* are tokens of KV on the edge, *refs* the conversations that pass through it. Both are
**derived from the record**: what one engine that evicts nothing would hold of these conversations
after their last calls. The search ran each group of policies on an empty cache of its own."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "map", "Cache map"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._edges: list[tuple[int, Edge]] = []

    def compose(self) -> ComposeResult:
        """Head, edges, and one edge in full."""
        yield Static(f"{'slots':>6} {'refs':>4}  edge   {_SOURCE}", id="head", markup=False)
        yield Lines()
        yield Static(id="edge", markup=False)

    def show(self) -> None:
        """See `Pane`."""
        if self.shown.task is None:
            self.query_one(Lines).say("no conversation is kept of this policy; choose another")
            self.query_one("#edge", Static).update("")
        else:
            self._read(self.shown.task)

    @work(thread=True, exclusive=True)
    def _read(self, task: TaskRef) -> None:
        run = self.shown.run
        kept = [
            (name_of(run, seen), trajectory)
            for seen in run.policies.values()
            if (trajectory := run.trajectory(seen, task)) is not None
        ]
        self.app.call_from_thread(self._loaded, tree_of(kept))

    def _loaded(self, edges: list[Edge]) -> None:
        self._edges = [pair for edge in edges for pair in edge.walk()]
        self.query_one(Lines).fill(len(self._edges), self._line, 0)
        self._tell()

    def _line(self, index: int, width: int) -> Text:
        depth, edge = self._edges[index]
        text = Text(f"{edge.slots:>6} {len(edge.names):>4}  {'  ' * min(depth, 24)}")
        first = edge.items[0]
        if isinstance(first, Segment):
            text.append(f"{len(edge.items)} messages: {first.text}")
        else:
            text.append(f"◆ {', '.join(map(described, first.ops))}", "bold magenta")
        return text

    def on_lines_moved(self) -> None:
        """Another edge."""
        self._tell()

    def _tell(self) -> None:
        index = self.query_one(Lines).index
        if index >= len(self._edges):
            return
        _, edge = self._edges[index]
        names = ", ".join(edge.names[:_MOST_NAMES])
        more = len(edge.names) - _MOST_NAMES
        rows = [f"of {names}{f' and {more} more' if more > 0 else ''}"]
        for item in edge.items:
            if isinstance(item, Segment):
                rows.append(f"{item.kind}: {item.text}")
            else:
                rows += [f"{described(op)} at {op.boundary}" for op in item.ops]
        self.query_one("#edge", Static).update("\n".join(rows))

    def action_map(self) -> None:
        """What the policy did to the cache."""
        self.post_message(self.Look(tab="map"))
