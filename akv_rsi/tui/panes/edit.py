"""Edit and try: change a policy, see what it does on a few tasks, keep it as a new file."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Static, TextArea
from textual.worker import Worker

from akv_rsi.errors import AkvError, ConfigError
from akv_rsi.insight.compare import source_of
from akv_rsi.insight.seen import Seen
from akv_rsi.insight.trial import attempt
from akv_rsi.policies.tunables import Tunable, redeclare, tunables_of
from akv_rsi.tasks.episode import Split
from akv_rsi.tui.confirm import Ask
from akv_rsi.tui.editor import Editor
from akv_rsi.tui.lines import Lines
from akv_rsi.tui.pane import Pane
from akv_rsi.tui.tried import Draft, problems_of, progress, told

if TYPE_CHECKING:
    from akv_rsi.tui.app import Inspector

COUNTS = (6, 12, 24, 48, 96)
_MOST_NUMBERS, _STEPS = 6, 20


class EditPane(Pane):
    """The source, its numbers, and what is wrong with it or what a trial came to."""

    DEFAULT_CSS = """
    EditPane #body { layout: vertical; height: 1fr; }
    EditPane.-wide #body { layout: horizontal; }
    EditPane #side { height: 10; }
    EditPane.-wide #side { width: 2fr; height: 100%; border-left: solid $panel; }
    EditPane.-wide Editor { width: 3fr; }
    EditPane #what { height: 1; background: $panel; text-style: bold; padding: 0 1; }
    EditPane #told { height: 1fr; }
    """
    HELP = """The source of the policy that is looked at, to be changed. Its numbers stand in a list
beside it: **←** and **→** change one, **Enter** asks for its value. **i** goes to the source, and
**Escape** back.

It is looked through as you type; **Enter** on a problem goes to its line. **Ctrl+R** runs the
original and the edited policy on the same few tasks of the run's suites, with its model, prices and
budget, in a process of its own. The difference is taken task by task; few tasks prove little. The
sealed test cannot be asked: what is chosen by it would be no test any more."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("i", "source", "Source"),
        Binding("left,minus", "change(-1)", "Less", show=False),
        Binding("right,plus", "change(1)", "More", show=False),
        Binding("ctrl+r", "try", "Try"),
        Binding("ctrl+t", "cancel", "Cancel"),
        Binding("ctrl+s", "save", "Save"),
        Binding("n", "tasks", "Tasks"),
        Binding("v", "split", "Split"),
        Binding("r", "original", "Reset"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._drafts: dict[str, Draft] = {}
        self._draft: Draft | None = None
        self._numbers: tuple[Tunable, ...] = ()
        self._problems: list[tuple[int, str]] = []
        self._trial: Worker[None] | None = None
        self._done = (0, 0)
        self.split: Split = "train"
        self.tasks = COUNTS[1]

    def compose(self) -> ComposeResult:
        """The source; numbers and news below it, or beside."""
        with Horizontal(id="body"):
            yield Editor()
            with Vertical(id="side"):
                yield Static(id="what", markup=False)
                yield Lines(id="numbers")
                yield Lines(id="told")

    @property
    def parting(self) -> str:
        """See `Pane`."""
        if any(draft.unsaved for draft in self._drafts.values()):
            return "An edited policy is not saved (7 Edit, Ctrl+S)."
        return ""

    @property
    def editor(self) -> Editor:
        """The source."""
        return self.query_one(Editor)

    def on_resize(self) -> None:
        """The source needs room first."""
        self.set_class(self.size.width >= 120, "-wide")

    def show(self) -> None:
        """See `Pane`. What was changed is kept for each policy."""
        seen = self.shown.policy
        if seen.spec.kind != "program":
            self._draft = None
            self.editor.load_text(source_of(seen))
            self.editor.read_only = True
        elif self._draft is None or self._draft.identity != seen.id:
            if seen.id not in self._drafts:
                self._drafts[seen.id] = Draft(seen.id, seen.label, _start(seen))
            self._draft = self._drafts[seen.id]
            self.editor.load_text(self._draft.text)
            self.editor.read_only = False
        self._look_through()

    @on(TextArea.Changed)
    def _changed(self) -> None:
        if self._draft is not None:
            self._draft.text = self.editor.text
        self._look_through()

    def _look_through(self) -> None:
        draft = self._draft
        self._problems = problems_of(draft.text) if draft else []
        try:
            self._numbers = tunables_of(draft.text) if draft else ()
        except AkvError:
            self._numbers = ()
        lines = self.query_one("#numbers", Lines)
        lines.styles.height = max(1, min(len(self._numbers), _MOST_NUMBERS))
        lines.fill(len(self._numbers), self._number)
        if not self._numbers:
            why = "its numbers are told once it has no problems" if self._problems else ""
            lines.say(f" {why or 'no numbers to change: i edits the source'}" if draft else "")
        self._tell()

    def _number(self, index: int, width: int) -> Text:
        number = self._numbers[index]
        scale = ", log" if number.log else ""
        line = Text(f" {number.name} = ").append(f"{number.default:.4g}", "bold")
        return line.append(f"   {number.low:g} to {number.high:g}{scale}")

    def _tell(self) -> None:
        draft, what = self._draft, f"on {self.tasks} {self.split} tasks"
        lines: list[Text] = []
        if draft is None:
            lines.append(Text("It is no program. Choose another policy in 1 Archive.", "italic"))
        elif self._problems:
            lines += [Text(f" line {line}: {text}", "red") for line, text in self._problems]
        elif self._trial is not None:
            lines.append(progress(*self._done))
        if draft is not None:
            lines += told(draft)
        if draft is not None and not lines:
            same = "as it ran" if not draft.changed else "changed; no problems"
            lines.append(Text(f" {same}. Ctrl+R tries it {what}, Ctrl+S saves it.", "italic"))
        news = self.query_one("#told", Lines)
        news.has_cursor = bool(self._problems)
        news.fill(len(lines), lambda i, _: lines[i])
        label = draft.label if draft else self.shown.policy.label
        self.query_one("#what", Static).update(f"{label} {what}")
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can be done now is offered."""
        if action in ("try", "cancel"):
            return (self._trial is None) == (action == "try")
        return True

    @on(Editor.Left)
    def _left(self) -> None:
        self.query_one("#numbers", Lines).focus()

    @on(Lines.Chosen, "#numbers")
    def _ask_number(self, event: Lines.Chosen) -> None:
        if event.index >= len(self._numbers):
            return
        number = self._numbers[event.index]
        what = f"{number.name}, from {number.low:g} to {number.high:g}"
        self.app.push_screen(
            Ask(what, f"{number.default:g}", lambda text: number.check(_number(text))),
            lambda value: None if value is None else self._set(number, value),
        )

    @on(Lines.Chosen, "#told")
    def _go_to(self, event: Lines.Chosen) -> None:
        if event.index < len(self._problems):
            self.editor.go_to(self._problems[event.index][0])

    def _set(self, number: Tunable, value: float) -> None:
        self.editor.put(redeclare(self.editor.text, {number.name: number.check(value)}))

    def action_change(self, by: int) -> None:
        """The number under the cursor, a step."""
        index = self.query_one("#numbers", Lines).index
        if index < len(self._numbers):
            number = self._numbers[index]
            self._set(number, stepped(number, by))

    def action_source(self) -> None:
        """Into the source."""
        self.editor.focus()

    def action_tasks(self) -> None:
        """More tasks; from the most on, few again."""
        self.tasks = COUNTS[(COUNTS.index(self.tasks) + 1) % len(COUNTS)]
        self._tell()

    def action_split(self) -> None:
        """Train or validation."""
        self.split = "validation" if self.split == "train" else "train"
        self._tell()

    def action_original(self) -> None:
        """The source as it ran; what was changed can be had again by undo."""
        if self._draft is not None:
            self.editor.put(self._draft.start)

    def action_save(self) -> None:
        """As a new file."""
        draft = self._draft
        if draft is None or self._problems:
            self.notify("Only a policy without problems is saved.", severity="error")
            return
        text = draft.text
        cast("Inspector", self.app).ask_where(
            f"{draft.label}, edited, as a policy file",
            f"edited_{draft.identity[:8]}.py",
            text,
            lambda path: setattr(draft, "saved", text),
        )

    def action_try(self) -> None:
        """Runs it beside the original."""
        draft = self._draft
        if draft is None or self._problems:
            self.notify("Only a policy without problems can be tried.", severity="error")
        elif problems_of(draft.start):
            self.notify("The original was refused: there is nothing to compare with.")
        elif self.shown.run.config.traces:
            self.notify(
                "This run searched on transcripts: there are no tasks to try a policy on. Save it, "
                "and ask akv-rsi audit or fidelity.",
                severity="error",
            )
        else:
            self._done = (0, 0)
            self._trial = self._try(draft, draft.text)
            self._tell()

    @work(exclusive=True, group="trial")
    async def _try(self, draft: Draft, text: str) -> None:
        run, split, tasks = self.shown.run, self.split, self.tasks
        try:
            trial = await attempt(run, draft.start, text, split, tasks, self._hear)
        except AkvError as error:
            draft.failure, draft.trial = str(error), None
            self.notify(str(error), severity="error")
            draft.tried, draft.on = text, f"{split} tasks"
        else:
            draft.failure, draft.trial = "", trial
            draft.tried, draft.on = text, f"{split} tasks"
        finally:
            self._trial = None
            if self.is_attached:
                self._tell()

    def _hear(self, done: int, of: int) -> None:
        self._done = (done, of)
        self._tell()

    def action_cancel(self) -> None:
        """Ends the trial and its processes."""
        if self._trial is not None:
            self._trial.cancel()
            self.notify("The trial is cancelled.")


def stepped(number: Tunable, by: int) -> float:
    """The next value: one more or less, or a twentieth of its range, on its own scale.

    >>> stepped(Tunable("keep", 1, 16, 6, True, False), 1)
    7
    """
    if number.integer:
        value = float(number.default + by)
    elif number.log:
        value = number.default * (number.high / number.low) ** (by / _STEPS)
    else:
        value = number.default + by * (number.high - number.low) / _STEPS
    value = max(number.low, min(number.high, float(f"{value:.4g}")))
    return int(value) if number.integer else value


def _start(seen: Seen) -> str:
    """Its source with the numbers that ran as defaults; as it is where it was refused."""
    try:
        return redeclare(seen.spec.source, seen.candidate.values)
    except AkvError:
        return seen.spec.source


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ConfigError(f"{text!r} is no number") from error
