"""A typed grammar of policies: what the offline proposer can say.

    program   := rule{1,4} reposition?
    rule      := "if" target ("and" condition){0,3} ":" action    never in the current turn
    target    := kind | tool | tools                              which segments
    condition := age | tokens | is_error | superseded | ephemeral | mentioned | noted | pressure
    action    := drop | drop, then refresh its notes | restore
    reposition:= "if" the positions in use exceed a share of the reliable span ":" repos()

Numbers are tunables, so a program is a structure and Optuna finds the values. Only words that occur
in the recorded trajectories are used: the tools that were called, and the flags that segments had.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import quantiles
from typing import Literal

from akv_rsi.types import Segment, Trajectory

Action = Literal["drop", "drop and refresh", "restore", "keep"]
RESULT = "tool_result"
VERBS = frozenset({"drop", "refresh", "repos", "restore"})


@dataclass(frozen=True, slots=True)
class Number:
    """A number to be tuned: ``stem`` is the beginning of its name."""

    stem: str
    low: float
    high: float
    default: float

    def declare(self, name: str) -> str:
        """Its line at the top of a program.

        >>> Number("age", 1, 16, 4).declare("AGE")
        'AGE = tunable("age", 1, 16, default=4)'
        """
        return (
            f'{name} = tunable("{name.lower()}", {self.low}, {self.high}, default={self.default})'
        )


@dataclass(frozen=True, slots=True)
class Condition:
    """A boolean expression; ``{seg}``, ``{ctx}`` and ``{n}`` stand for names of the program."""

    text: str
    number: Number | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """Which segments, and what to do with them."""

    conditions: tuple[Condition, ...]
    action: Action


@dataclass(frozen=True, slots=True)
class Program:
    """A policy: its rules in order, and when to reposition (None: never)."""

    rules: tuple[Rule, ...]
    reposition: Condition | None = None


# A tool's name becomes part of a program's source.
_QUOTABLE = re.compile(r"[\w.:/@ -]{1,64}")

# Dropping the current turn is an error: a rule without an age condition excludes it by this one.
NOT_NOW = Condition("{seg}.age > 0")
AGED = "{seg}.age >= {n}"
AGE = Number("age", 1, 16, 4)
TOKENS = Number("tokens", 4, 64, 16)
MENTIONS = Number("mentions", 1, 4, 1)
SPAN = Number("span", 0.3, 1.5, 0.9)
LONGEST = 80  # characters of a condition before it is broken over lines


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What conditions may speak of: seen in recorded trajectories, and offered by the target.

    ``tools`` are ordered by the tokens their results take; ``flags`` are properties that some
    segments have and others have not: is_error, ephemeral, superseded, noted. ``sizes`` is the
    range of tool results in tokens.
    """

    tools: tuple[str, ...]
    kinds: tuple[str, ...]
    flags: frozenset[str]
    verbs: frozenset[str] = VERBS
    sizes: Number = TOKENS

    @classmethod
    def of(cls, trajectories: Sequence[Trajectory], verbs: frozenset[str] = VERBS) -> Vocabulary:
        """The vocabulary of ``trajectories``."""
        segments = [s for t in trajectories for s in t.segments if not s.pinned]
        tools: Counter[str] = Counter()
        kinds: Counter[str] = Counter()
        for segment in segments:
            kinds[segment.kind] += segment.tokens
            if segment.kind == RESULT and segment.tool and _QUOTABLE.fullmatch(segment.tool):
                tools[segment.tool] += segment.tokens
        flags = {name for name in ("is_error", "ephemeral") if _varies(segments, name)}
        flags |= {"noted"} if kinds.keys() & {"assistant", "reasoning"} else set()
        flags |= {"superseded"} if any(_repeats(t) for t in trajectories) else set()
        by_size = [tuple(name for name, _ in counter.most_common()) for counter in (tools, kinds)]
        sizes = _sizes([s.tokens for s in segments if s.kind == RESULT])
        return cls(by_size[0], by_size[1], frozenset(flags), verbs, sizes)


def _sizes(tokens: Sequence[int]) -> Number:
    """The numbers to compare with: of results that `TOKENS` is too small for, their own range."""
    if len(tokens) < 2:
        return TOKENS
    deciles = quantiles(tokens, n=10)
    if deciles[-1] <= TOKENS.high:
        return TOKENS
    low, high = round(max(TOKENS.low, deciles[0])), round(deciles[-1])
    return Number(TOKENS.stem, low, high, round(deciles[4]))


def _repeats(trajectory: Trajectory) -> bool:
    """Whether a tool was called again with the same arguments."""
    calls = [(s.tool, s.call) for s in trajectory.segments if s.kind == "tool_result"]
    return len(set(calls)) < len(calls)


def _varies(segments: Iterable[Segment], name: str) -> bool:
    return len({getattr(segment, name) for segment in segments}) == 2


class Grammar:
    """Draws programs and their parts; the same `Random` gives the same draws."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def atoms(self) -> list[Program]:
        """The simplest programs: one rule with one condition, for each kind and each tool.

        They tell what each rule saves and loses by itself: the stock to combine from. What was
        superseded is asked for tool by tool, too: for some tools the newer result says it all.
        """
        age, result = Condition(AGED, AGE), Condition(f'{{seg}}.kind == "{RESULT}"')
        targets = [Condition(f'{{seg}}.kind == "{kind}"') for kind in self.vocabulary.kinds]
        tools = [Condition(tool_test([tool], "{seg}")) for tool in self.vocabulary.tools]
        rules = [(target, age) for target in (*targets, *tools)]
        rules.append((result, Condition("{seg}.tokens < {n}", self.vocabulary.sizes)))
        rules.append((result, Condition("{seg}.mentioned_later >= {n}", MENTIONS)))
        if "superseded" in self.vocabulary.flags:
            superseded = Condition("{seg}.superseded_by is not None")
            rules += [(target, superseded) for target in (result, *tools)]
            rules.append((superseded, Condition("{seg}.tokens >= {n}", self.vocabulary.sizes)))
        if "noted" in self.vocabulary.flags:
            rules.append((result, Condition("{ctx}.notes_about({seg})")))
        near = Condition("{ctx}.position_span > {n} * {ctx}.reliable_span", SPAN)
        when = near if "repos" in self.vocabulary.verbs else None
        return [Program((Rule(conditions, "drop"),), when) for conditions in rules]

    def program(self, rng: Random) -> Program:
        """A whole policy. Small ones are likelier than large ones."""
        count = rng.choices((1, 2, 3, 4), (4, 4, 2, 1))[0]
        rules = tuple(self.rule(rng, ("drop", "drop and refresh")) for _ in range(count))
        if "restore" in self.vocabulary.verbs and rng.random() < 0.1:
            rules += (self.rule(rng, ("restore",)),)
        wanted = "repos" in self.vocabulary.verbs and rng.random() < 0.85
        return Program(rules, self.reposition(rng) if wanted else None)

    def rule(self, rng: Random, actions: tuple[Action, ...]) -> Rule:
        """One rule with one of the ``actions``."""
        offered = [a for a in actions if "refresh" in self.vocabulary.verbs or "refresh" not in a]
        action = rng.choice(offered)
        if action == "restore":
            return Rule((self.target(rng), Condition("{seg}.mentioned_later")), action)
        conditions = [self.target(rng)]
        for _ in range(rng.choices((0, 1, 2, 3), (1, 4, 3, 1))[0]):
            condition = self.condition(rng)
            if condition not in conditions:
                conditions.append(condition)
        return Rule(tuple(conditions), action)

    def target(self, rng: Random) -> Condition:
        """Which segments: a kind, a tool, or several tools."""
        tools, kinds = self.vocabulary.tools, self.vocabulary.kinds
        # Kinds are ordered by the tokens they take: the more there are, the more there is to save.
        kind = rng.choices(kinds, [2**-i for i in range(len(kinds))])[0] if kinds else RESULT
        if kind != RESULT or not tools or rng.random() < 0.5:
            return Condition(f'{{seg}}.kind == "{kind}"')
        count = 1 if len(tools) == 1 or rng.random() < 0.6 else rng.randint(2, min(4, len(tools)))
        return Condition(tool_test(rng.sample(tools, count), "{seg}"))

    def condition(self, rng: Random) -> Condition:
        """One more thing that must hold of a segment."""
        choices = [
            (6, Condition(AGED, AGE)),
            (2, Condition("{seg}.tokens < {n}", self.vocabulary.sizes)),
            (1, Condition("{seg}.tokens >= {n}", self.vocabulary.sizes)),
            (3, Condition("{seg}.mentioned_later >= {n}", MENTIONS)),
            (2, Condition("not {seg}.mentioned_later")),
            (2, Condition("{ctx}.position_span > {n} * {ctx}.reliable_span", SPAN)),
        ]
        flags = self.vocabulary.flags
        if "superseded" in flags:
            choices.append((3, Condition("{seg}.superseded_by is not None")))
        if "noted" in flags:
            choices.append((2, Condition("{ctx}.notes_about({seg})")))
            choices.append((1, Condition("not {ctx}.notes_about({seg})")))
        for flag in sorted(flags & {"is_error", "ephemeral"}):
            choices.append((2, Condition(f"not {{seg}}.{flag}")))
            choices.append((1, Condition(f"{{seg}}.{flag}")))
        weights, conditions = zip(*choices, strict=True)
        drawn: Condition = rng.choices(conditions, weights)[0]
        return drawn

    def reposition(self, rng: Random) -> Condition:
        """When to close the gaps: mostly when the positions in use near the reliable span."""
        if rng.random() < 0.15:
            return Condition("{ctx}.position_span > {ctx}.attended")
        return Condition("{ctx}.position_span > {n} * {ctx}.reliable_span", SPAN)


def tool_test(tools: Iterable[str], seg: str) -> str:
    """The expression that says that ``seg`` is a result of one of the tools.

    >>> tool_test(["b", "a"], "seg")
    'seg.tool in ("a", "b")'
    """
    names = [f'"{tool}"' for tool in sorted(tools)]
    return f"{seg}.tool == {names[0]}" if len(names) == 1 else f"{seg}.tool in ({', '.join(names)})"


def render(program: Program) -> str:
    """The program as readable DSL source."""
    names = Names()
    lines = ["    for seg in ctx.segments:"]
    for rule in program.rules:
        lines += [f"        {line}" for line in render_rule(rule, names, "seg", "ctx").splitlines()]
    if program.reposition is not None:
        lines += [f"    {line}" for line in render_reposition(program.reposition, names, "ctx")]
    body = "\n".join(lines)
    verbs = sorted(verb for verb in VERBS if f"{verb}(" in body)
    imports = ", ".join(["Context", *verbs, *(["tunable"] if names.declared else [])])
    return "\n".join(
        [
            f"from akv_rsi.policies.dsl import {imports}",
            "",
            *(number.declare(name) for name, number in names.declared.items()),
            *([""] if names.declared else []),
            "",
            "def policy(ctx: Context) -> None:",
            body,
            "",
        ]
    )


class Names:
    """Gives each number of a program a name of its own; ``taken`` ones are not given again."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self.declared: dict[str, Number] = {}

    def name(self, number: Number) -> str:
        """A new constant for ``number``."""
        name = self.fresh(number.stem.upper())
        self.declared[name] = number
        return name

    def fresh(self, wanted: str) -> str:
        """``wanted``, or when that is taken AGE_2, AGE_3 and so on."""
        stem, serial = re.sub(r"_\d+$", "", wanted), 1
        name = wanted
        while name in self._taken:
            serial += 1
            name = f"{stem}_{serial}"
        self._taken.add(name)
        return name


def render_condition(condition: Condition, names: Names, seg: str, ctx: str) -> str:
    """The condition as an expression over the variables ``seg`` and ``ctx``."""
    number = "" if condition.number is None else names.name(condition.number)
    return condition.text.format(seg=seg, ctx=ctx, n=number)


def render_rule(rule: Rule, names: Names, seg: str, ctx: str) -> str:
    """The rule as an ``if`` statement in the body of the loop over segments."""
    guard = f"{seg}.dropped" if rule.action == "restore" else f"not {seg}.dropped"
    conditions = rule.conditions
    if rule.action != "restore" and all(c.text != AGED for c in conditions):
        conditions = (NOT_NOW, *conditions)
    tests = [render_condition(condition, names, seg, ctx) for condition in conditions]
    head = f"if {' and '.join([guard, *tests])}:"
    if len(head) > LONGEST:
        head = "if (\n    {}\n):".format("\n    and ".join([guard, *tests]))
    if rule.action in ("restore", "keep"):
        return f"{head}\n    {rule.action}({seg})"
    lines = [head, f"    drop({seg})"]
    if rule.action == "drop and refresh":
        lines += [f"    for note in {ctx}.notes_about({seg}):", "        refresh(note)"]
    return "\n".join(lines)


def render_reposition(condition: Condition, names: Names, ctx: str) -> list[str]:
    """The statement that closes the gaps, as lines at the level of the function's body."""
    return [f"if {render_condition(condition, names, 'seg', ctx)}:", "    repos()"]
