"""The inspector's app: tabs over one run, and what all of them share."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Static, TabbedContent, TabPane
from textual.worker import Worker

from akv_rsi.errors import AkvError, StoreError
from akv_rsi.insight.module import exportable, module_of, write_new
from akv_rsi.insight.run import Run
from akv_rsi.tui.confirm import Ask, Confirm, free_path
from akv_rsi.tui.look import name_of
from akv_rsi.tui.pane import Pane, Shown

# Name: what its tab says, and where it is. A screen is loaded and made when it is first looked at.
PANES = {
    "archive": ("Archive", "akv_rsi.tui.panes.archive:ArchivePane"),
    "policy": ("Policy", "akv_rsi.tui.panes.policy:PolicyPane"),
    "map": ("Cache map", "akv_rsi.tui.panes.map:MapPane"),
    "trajectory": ("Trajectory", "akv_rsi.tui.panes.trajectory:TrajectoryPane"),
    "tree": ("Tree", "akv_rsi.tui.panes.tree:TreePane"),
    "live": ("Live", "akv_rsi.tui.panes.live:LivePane"),
    "edit": ("Edit", "akv_rsi.tui.panes.edit:EditPane"),
}


def make_pane(name: str) -> Pane:
    """A screen of that name."""
    module, _, kind = PANES[name][1].partition(":")
    pane: Pane = getattr(import_module(module), kind)()
    return pane


class Inspector(App[None]):
    """Looks at one run. ``follow`` reads what is added, once a second."""

    TITLE = "akv-rsi"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #where { height: 1; text-wrap: nowrap; text-overflow: ellipsis; padding: 0 1;
      background: $primary-darken-2; color: $text; }
    TabbedContent { height: 1fr; }
    TabPane { padding: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(number), f"tab('{name}')", label, show=False)
            for number, (name, (label, _)) in enumerate(PANES.items(), 1)
        ),
        Binding("e", "export", "Export"),
        Binding("question_mark", "help", "Help"),
        Binding("t", "theme", "Light/dark", show=False),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, run: Run, follow: bool = False) -> None:
        super().__init__()
        self.shown = Shown.first(run)
        self.follow = follow
        self._reading: Worker[None] | None = None
        self._first = "live" if follow else next(iter(PANES))

    def compose(self) -> ComposeResult:
        """Where we are, the tabs, the keys."""
        yield Static(id="where", markup=False)
        with TabbedContent(initial=self._first):
            for number, (name, (label, _)) in enumerate(PANES.items(), 1):
                with TabPane(f"{number} {label}", id=name):
                    if name == self._first:
                        self._front = make_pane(name)
                        yield self._front
        yield Footer()

    def on_mount(self) -> None:
        """The first screen; and the next look at the store, if it is followed."""
        self._tell()
        if self.follow:
            self.set_interval(1.0, self.read)

    @property
    def pane(self) -> Pane:
        """The screen in front; the one before, for the moment in which it is made."""
        tabs = self.query_one(TabbedContent)
        found = tabs.get_pane(tabs.active).query(Pane)
        return found.first() if found else self._front

    @on(TabbedContent.TabActivated)
    async def activated(self) -> None:
        """A screen comes to the front."""
        await self._make(self.query_one(TabbedContent).active)
        self._front = self.pane
        self.pane.show()
        self.pane.query("Lines, MapGrid").first().focus()

    async def _make(self, name: str) -> None:
        """Makes the screen if it is not there yet."""
        tab = self.query_one(TabbedContent).get_pane(name)
        if not tab.query(Pane):
            await tab.mount(make_pane(name))

    @on(Pane.Look)
    async def look(self, event: Pane.Look) -> None:
        """Something else is looked at."""
        shown = self.shown
        shown.chosen = True
        shown.policy, shown.partner = event.policy or shown.policy, event.partner or shown.partner
        shown.task = event.task or shown.task
        shown.settle()
        self._tell()
        if event.tab:
            await self.action_tab(event.tab)
        else:
            self.pane.looked()

    def read(self) -> None:
        """What was added to the store, unless that is being read just now."""
        if self._reading is None or self._reading.is_finished:
            self._reading = self._read()

    @work(thread=True)
    def _read(self) -> None:
        """A failure is told, and what was read stays."""
        try:
            added = self.shown.run.refresh()
        except StoreError as error:
            self.call_from_thread(self.notify, str(error), severity="error")
            return
        self.call_from_thread(self._looked, added)

    def _looked(self, added: int) -> None:
        if added:
            self.shown.follow()
            self.pane.show()
        else:
            self.pane.tick()
        self._tell()

    def _tell(self) -> None:
        shown, run = self.shown, self.shown.run
        words = [f"{run.name}, {run.state}", name_of(run, shown.policy)]
        if shown.partner is not shown.policy:
            words[1] += f" against {name_of(run, shown.partner)}"
        if shown.task is not None:
            words.append(f"{shown.task.suite}/{shown.task.seed}")
        self.query_one("#where", Static).update(" · ".join(words))

    async def action_tab(self, name: str) -> None:
        """Brings a screen to the front."""
        await self._make(name)
        self.query_one(TabbedContent).active = name

    def action_help(self) -> None:
        """What this screen shows, and every key."""
        from akv_rsi.tui.help import Help  # it takes long to load

        self.push_screen(Help(self.pane))

    def action_export(self) -> None:
        """Writes the policy that is looked at as a module."""
        seen = self.shown.policy
        try:
            text = module_of(self.shown.run, exportable(self.shown.run, seen.id))
        except AkvError as error:
            self.notify(str(error), severity="error")
            return
        self.ask_where(
            f"{seen.label} as a Python module", f"policy_{seen.id[:8]}.py", text, lambda path: None
        )

    def ask_where(self, what: str, name: str, text: str, wrote: Callable[[Path], None]) -> None:
        """Writes ``text`` to a new file of the user's choice, and tells ``wrote`` of it."""

        def write(path: Path | None) -> None:
            if path is None:
                return
            try:
                write_new(path, text)
            except StoreError as error:
                self.notify(str(error), severity="error")
            else:
                self.notify(f"wrote {path}")
                wrote(path)

        self.push_screen(Ask(f"{what}; Enter writes it", name, free_path), write)

    async def action_quit(self) -> None:
        """Asks first where a screen has something to say."""
        words = [pane.parting for pane in self.query(Pane) if pane.parting]
        if not words:
            self.exit()
            return
        question = " ".join([*words, "Quit all the same?"])
        self.push_screen(Confirm(question), lambda sure: self.exit() if sure else None)

    def action_theme(self) -> None:
        """Light or dark."""
        self.theme = "textual-light" if self.current_theme.dark else "textual-dark"
        self.pane.show()
