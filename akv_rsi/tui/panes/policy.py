"""One policy: its source, its numbers and what they do, where it comes from, and a diff."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from akv_rsi.insight.compare import Side, diff, source_of
from akv_rsi.insight.provenance import about
from akv_rsi.insight.study import declared, effect
from akv_rsi.policies.tunables import Tunable
from akv_rsi.tui.lines import Lines
from akv_rsi.tui.look import highlighted, short
from akv_rsi.tui.pane import Pane

_DIFF: dict[Side, str] = {"same": "", "old": "red", "new": "green", "place": "bold cyan"}
_BAR = 12


class PolicyPane(Pane):
    """Source on the left; all that is known of it on the right."""

    DEFAULT_CSS = """
    PolicyPane #source { width: 3fr; }
    PolicyPane #facts { width: 2fr; border-left: solid $panel; }
    PolicyPane.-narrow #facts { display: none; }
    PolicyPane.-narrow.-facts #facts { display: block; width: 1fr; border-left: none; }
    PolicyPane.-narrow.-facts #source { display: none; }
    """
    HELP = """The source as it ran, with its numbers filled in, and what is known of it: scores,
parents, why it was not run, and what each tunable did.

*Studied effect*: every number that was tried for this structure. The bars are the cost ratio on
recorded conversations; *seen* is how well the agent could still see what it wrote (1 is all)."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "diff", "Diff"),
        Binding("i", "facts", "Facts"),
        Binding("u", "parent", "Parent"),
        Binding("c", "map", "Cache map"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.as_diff = False

    def compose(self) -> ComposeResult:
        """Two lists of lines."""
        with Horizontal():
            yield Lines(id="source", cursor=False)
            yield Lines(id="facts", cursor=False)

    def on_resize(self) -> None:
        """Both side by side need room."""
        self.set_class(self.size.width < 100, "-narrow")

    def show(self) -> None:
        """See `Pane`."""
        lines = self._diff() if self.as_diff else self._source()
        self.query_one("#source", Lines).fill(len(lines), lambda i, _: lines[i])
        facts = self._facts()
        self.query_one("#facts", Lines).fill(len(facts), lambda i, _: facts[i])

    def _source(self) -> list[Text]:
        rows = highlighted(source_of(self.shown.policy), self.dark)
        return [Text.assemble((f"{i:4} ", "dim"), row) for i, row in enumerate(rows, 1)]

    def _diff(self) -> list[Text]:
        ours, theirs = self.shown.policy, self.shown.partner
        head = Text(f"{theirs.label}  ->  {ours.label}", style="bold")
        if theirs.id == ours.id:
            return [head, Text("The same policy. Mark another with m in the archive.", "italic")]
        lines = diff(source_of(theirs), source_of(ours))
        return [head, *(Text(text, style=_DIFF[side]) for side, text in lines)]

    def _facts(self) -> list[Text]:
        lines: list[Text | str] = [
            Text(line, style="bold" if line.endswith(":") else "")
            for line in about(self.shown.run, self.shown.policy)
        ]
        for tunable in declared(self.shown.policy):
            lines += ["", *self._studied(tunable)]
        return [line if isinstance(line, Text) else Text(line) for line in lines]

    def _studied(self, tunable: Tunable) -> list[Text]:
        """A tunable, and a line for each of its values that was tried."""
        value = self.shown.policy.candidate.values.get(tunable.name, tunable.default)
        scale = "log " if tunable.log else ""
        head = f"{tunable.name} = {value:.4g}  ({scale}{tunable.low:g} to {tunable.high:g})"
        lines = [Text(head, "bold")]
        for tried in effect(self.shown.run, self.shown.policy, tunable):
            own = tried.value == value
            bar = "▬" * round(min(tried.ratio, 1.0) * _BAR)
            text = f"{'▸' if own else ' '}{tried.value:8.4g} {bar:{_BAR}} {short(tried.ratio)}"
            text += f" seen {short(tried.support)}"
            if tried.accuracy is not None:
                text += f" solved {short(tried.accuracy)}/{tried.episodes}"
            lines.append(Text(text, "bold" if own else ""))
        return lines

    def action_diff(self) -> None:
        """Source, or what differs from the other policy: the marked one, else its parent."""
        self.as_diff = not self.as_diff
        parents = self.shown.policy.candidate.parents
        if self.as_diff and self.shown.partner is self.shown.run.full and parents:
            parent = self.shown.run.policies.get(parents[0])
            self.post_message(self.Look(partner=parent))
        self.show()

    def action_facts(self) -> None:
        """On a narrow screen: facts, or source."""
        self.toggle_class("-facts")

    def action_parent(self) -> None:
        """Goes to the first parent."""
        for parent in self.shown.policy.candidate.parents:
            if parent in self.shown.run.policies:
                self.post_message(self.Look(policy=self.shown.run.policies[parent]))
                return
        self.notify("It has no parent in this run.")

    def action_map(self) -> None:
        """What it did to the cache."""
        self.post_message(self.Look(tab="map"))
