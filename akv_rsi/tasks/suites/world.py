"""The common core of the built-in suites: procedural tasks with an environment that answers.

A task is a script of steps. Each observation ends with what is to be done next; the agent must find
the value for it in the conversation. Values have life cycles, which is what a cache policy has to
learn: polling noise that nothing needs, search hits useful until one is followed, views whose facts
are needed later (some restated in a note, some not), views superseded by a fresh one, errors needed
until fixed, and a constraint from the first turn needed by the last.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from akv_rsi.tasks.environment import Environment, Message, Observation
from akv_rsi.tasks.suites.words import NOISE, VALUES

MISTAKES_ALLOWED = 6


@dataclass(frozen=True, slots=True)
class Skin:
    """What makes a suite: its words, and how often each life cycle occurs in it.

    ``weights`` are relative frequencies of the stages: ``look`` (search, then view), ``poll``,
    ``error``, ``again`` (view something anew). ``noted`` is the probability that a fact is restated
    in a note; ``filler`` bounds the words of noise in a view, ``chatter`` those in a poll.
    """

    name: str
    system: str
    goal: str
    setup: tuple[str, str]
    finish: str
    search: str
    view: str
    put: str
    poll: tuple[str, ...]
    attempt: tuple[str, ...]
    repair: str
    artifact: str
    places: tuple[str, ...]
    keys: tuple[str, ...]
    weights: tuple[int, int, int, int]
    noted: float
    filler: tuple[int, int]
    chatter: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Step:
    """One turn of the script.

    ``ask`` is the instruction the preceding observation ends with, ``action`` the right answer and
    ``reply`` what the environment then says. ``needs`` are the facts the answer depends on;
    ``shows`` those the reply states, ``restates`` those the answer itself repeats. An answer with
    the right verb but another value is accepted in silence, as a wrong edit is, unless ``strict``.
    """

    ask: str
    action: str
    reply: Message
    needs: tuple[str, ...] = ()
    shows: tuple[str, ...] = ()
    restates: tuple[str, ...] = ()
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Script:
    """A task: its steps, and the ``(key, value)`` behind each fact's name."""

    skin: Skin
    steps: tuple[Step, ...]
    facts: Mapping[str, tuple[str, str]]

    @property
    def words(self) -> int:
        """Words of the expert's conversation, with a header and an end marker for each message."""
        texts = [self.skin.system, self.skin.goal]
        for step in self.steps:
            texts.extend([step.action, step.reply.text])
        asks = sum(len(step.ask.split()) + 3 for step in self.steps)
        return sum(len(text.split()) + 2 for text in texts) + asks


@dataclass(slots=True)
class ScriptWriter:
    """Writes a script, stage by stage."""

    skin: Skin
    rng: random.Random
    steps: list[Step] = field(default_factory=list)
    facts: dict[str, tuple[str, str]] = field(default_factory=dict)  # fact -> (key, value)
    live: list[str] = field(default_factory=list)  # facts that may still be asked for
    place_of: dict[str, str] = field(default_factory=dict)  # live fact -> where it was seen
    serial: int = 0

    def noise(self, bounds: tuple[int, int]) -> str:
        """Words that mean nothing."""
        return " ".join(self.rng.choice(NOISE) for _ in range(self.rng.randint(*bounds)))

    def fact(self, key: str) -> str:
        """A new fact for ``key``: its name."""
        self.serial += 1
        taken = {value for _, value in self.facts.values()}
        value = self.rng.choice([v for v in VALUES if v not in taken] or list(VALUES))
        name = f"{key}#{self.serial}"
        self.facts[name] = (key, value)
        return name

    def add(self, ask: str, action: str, text: str, tool: str, **more: object) -> None:
        """Appends a step whose reply comes from ``tool``."""
        call = action.partition(" ")[2]
        error = bool(more.pop("is_error", False))
        message = Message("tool_result", text, tool=tool, call=call, is_error=error)
        self.steps.append(Step(ask, action, message, **more))  # type: ignore[arg-type]

    def pairs(self, facts: list[str]) -> str:
        """Facts as the agent reads them: key, value."""
        return " , ".join(" ".join(self.facts[fact]) for fact in facts)

    def script(self) -> Script:
        """What has been written."""
        return Script(self.skin, tuple(self.steps), dict(self.facts))

    def begin(self) -> None:
        """The first turn, which states what the last one needs."""
        verb, key = self.skin.setup
        fact = self.fact(key)
        text = f"ready . {self.pairs([fact])} . {self.noise(self.skin.filler)}"
        self.add(verb, verb, text, verb, shows=(fact,))
        if self.rng.random() < self.skin.noted:
            self.note(fact)

    def note(self, fact: str) -> None:
        """The agent restates a fact."""
        key, value = self.facts[fact]
        action = f"note {key} {value}"
        self.add(f"note {key}", action, "saved", "note", needs=(fact,), restates=(fact,))

    def look(self) -> None:
        """Search, follow the one hit that matches, read; note a fact or leave it at that."""
        skin, rng = self.skin, self.rng
        used = {self.facts[f][0] for f in self.live}
        keys = rng.sample([k for k in skin.keys if k not in used], 4)
        places = rng.sample([p for p in skin.places if p not in self.place_of.values()], 3)
        wanted, place = keys[0], places[0]
        hits = list(zip(places, [wanted, keys[2], keys[3]], strict=True))
        rng.shuffle(hits)
        found = f"hits#{self.serial}#{len(self.steps)}"
        listing = " , ".join(f"{key} {found_in}" for found_in, key in hits)
        text = f"{listing} . {self.noise((2, 6))}"
        self.add(
            f"{skin.search} {wanted}", f"{skin.search} {wanted}", text, skin.search, shows=(found,)
        )
        facts = [self.fact(k) for k in rng.sample(keys[:2], 2)]
        self.read(f"{skin.view} {wanted}", place, facts, needs=(found,))
        for fact in facts:
            self.place_of[fact] = place
        self.live.extend(facts)
        if rng.random() < skin.noted:
            self.note(rng.choice(facts))

    def read(self, ask: str, place: str, facts: list[str], needs: tuple[str, ...] = ()) -> None:
        """A view of ``place`` that states ``facts``."""
        text = f"{place} : {self.pairs(facts)} . {self.noise(self.skin.filler)}"
        view = self.skin.view
        self.add(ask, f"{view} {place}", text, view, needs=needs, shows=tuple(facts))

    def again(self) -> None:
        """View a place anew: its facts have changed and the old view is superseded."""
        places = sorted({self.place_of[f] for f in self.live})
        if not places:
            return self.look()
        place = self.rng.choice(places)
        old = [f for f in self.live if self.place_of[f] == place]
        new = [self.fact(self.facts[f][0]) for f in old]
        self.live = [f for f in self.live if f not in old] + new
        for fact in new:
            self.place_of[fact] = place
        self.read(f"{self.skin.view} {place}", place, new)
        if self.rng.random() < self.skin.noted:
            self.note(self.rng.choice(new))
        return None

    def poll(self) -> None:
        """Wait for something; only the last answer holds anything, and that is needed later."""
        skin, rng = self.skin, self.rng
        action = rng.choice(skin.poll)
        tool = action.partition(" ")[0]
        for _ in range(rng.randint(1, 4)):
            self.add(action, action, f"pending . {self.noise(skin.chatter)}", tool)
        if skin.artifact in {self.facts[f][0] for f in self.live}:
            self.add(action, action, f"finished . {self.noise((2, 5))}", tool)
            return
        fact = self.fact(skin.artifact)
        self.add(
            action,
            action,
            f"finished . {self.pairs([fact])} . {self.noise((2, 5))}",
            tool,
            shows=(fact,),
        )
        self.live.append(fact)
        self.place_of[fact] = action

    def error(self) -> None:
        """Something fails; what the message says is needed until it is repaired."""
        skin, rng = self.skin, self.rng
        attempt = rng.choice(skin.attempt)
        fact = self.fact(skin.repair)
        value = self.facts[fact][1]
        text = f"error : needs {skin.repair} {value} . {self.noise(skin.filler)}"
        tool = attempt.partition(" ")[0]
        self.add(attempt, attempt, text, tool, shows=(fact,), is_error=True)
        if rng.random() < 0.4:
            self.poll()
        reply = f"repaired . {self.noise((0, 3))}".strip()
        self.add(
            skin.repair, f"{skin.repair} {value}", reply, skin.repair, needs=(fact,), strict=True
        )

    def use(self) -> None:
        """Ask for a live fact; most are needed once."""
        fact = self.rng.choice(self.live)
        key, value = self.facts[fact]
        put = self.skin.put
        self.add(f"{put} {key}", f"{put} {key} {value}", "accepted", put, needs=(fact,))
        if self.rng.random() < 0.85:
            self.live.remove(fact)

    def end(self) -> None:
        """The last turn, which needs what the first one stated."""
        fact = next(iter(self.facts))
        key, value = self.facts[fact]
        finish = f"{self.skin.finish} {key}"
        self.add(finish, f"{finish} {value}", "closed", self.skin.finish, needs=(fact,))


def write_drill(skin: Skin, rng: random.Random, turns: int) -> Script:
    """An easy script for training: views with hardly any noise, their facts asked for at once."""
    writer = ScriptWriter(replace(skin, filler=(0, 2), chatter=(0, 2)), rng)
    writer.begin()
    while len(writer.steps) < turns:
        place, *_ = rng.sample([p for p in skin.places if p not in writer.place_of.values()], 1)
        taken = {writer.facts[f][0] for f in writer.live}
        facts = [
            writer.fact(key) for key in rng.sample([k for k in skin.keys if k not in taken], 2)
        ]
        writer.read(f"{skin.view} {place}", place, facts)
        writer.place_of.update(dict.fromkeys(facts, place))
        writer.live.extend(facts)
        if rng.random() < 0.3:
            writer.note(rng.choice(facts))
        for _ in range(rng.randint(1, len(writer.live))):
            writer.use()
    writer.end()
    return writer.script()


def write_script(skin: Skin, rng: random.Random, turns: int) -> Script:
    """A script of about ``turns`` steps."""
    writer = ScriptWriter(skin, rng)
    writer.begin()
    writer.look()
    while len(writer.steps) < turns - 2:
        if writer.live and rng.random() < 0.2 + 0.08 * len(writer.live):
            writer.use()
        else:
            stages = (writer.look, writer.poll, writer.error, writer.again)
            rng.choices(stages, skin.weights)[0]()
    if writer.live:
        writer.use()
    writer.end()
    return writer.script()


class ScriptedEnvironment:
    """One task of a built-in suite. It also records what is still needed (`Hindsight`)."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.steps = script.steps
        self._at = 0
        self._mistakes = 0
        self._wrong = False
        self._messages = 0
        self._source: dict[str, int] = {}

    def reset(self) -> Observation:
        """The system message and the goal, which ends with the first instruction."""
        self._messages = 2
        goal = f"{self.script.skin.goal} . next : {self.steps[0].ask}"
        return Observation((Message("system", self.script.skin.system), Message("user", goal)))

    def step(self, action: str) -> Observation:
        """The reply to ``action`` and the next instruction."""
        step = self.steps[self._at]
        asked, self._messages = self._messages, self._messages + 2
        kind = "assistant" if action.startswith("note ") else "tool_call"
        if action != step.action:
            if step.strict or not _same_form(action, step.action):
                return self._refuse(action, step)
            self._wrong = True
        self._source.update(dict.fromkeys(step.restates, asked))
        self._source.update(dict.fromkeys(step.shows, asked + 1))
        self._at += 1
        done = self._at == len(self.steps)
        text = step.reply.text if done else f"{step.reply.text} . next : {self.steps[self._at].ask}"
        call = action.partition(" ")[2]
        reply = Message("tool_result", text, step.reply.tool, call, step.reply.is_error)
        return Observation((reply,), done, kind)  # type: ignore[arg-type]

    def expert(self) -> str:
        """The right action now."""
        return self.steps[self._at].action

    def verify(self) -> bool:
        """Every step was answered, and with the right value."""
        return self._at == len(self.steps) and not self._wrong

    def needed(self) -> frozenset[int]:
        """Messages whose facts the remaining steps depend on."""
        facts = {fact for step in self.steps[self._at :] for fact in step.needs}
        return frozenset(self._source[fact] for fact in facts if fact in self._source)

    def _refuse(self, action: str, step: Step) -> Observation:
        self._mistakes += 1
        text = f"error : not accepted . next : {step.ask}"
        reply = Message(
            "tool_result", text, step.reply.tool, action.partition(" ")[2], is_error=True
        )
        return Observation((reply,), done=self._mistakes > MISTAKES_ALLOWED)


def _same_form(action: str, expected: str) -> bool:
    """Whether both have the same words but for the last, which is a value or a place."""
    given, right = action.split(), expected.split()
    return len(given) == len(right) > 1 and given[:-1] == right[:-1]


@dataclass(frozen=True, slots=True)
class ScriptedSuite:
    """A suite over a skin. Even seeds give short tasks, odd ones long tasks.

    ``short`` and ``long`` bound the turns, ``short_words`` and ``long_words`` the script's words,
    which are the reference agent's tokens.
    """

    skin: Skin
    short: tuple[int, int] = (8, 13)
    long: tuple[int, int] = (34, 50)
    short_words: tuple[int, int] = (150, 440)
    long_words: tuple[int, int] = (820, 1320)

    @property
    def name(self) -> str:
        """The suite's name on the command line."""
        return self.skin.name

    def script(self, seed: int) -> Script:
        """The script of the task of ``seed``."""
        rng = random.Random(f"{self.name}/{seed}")
        turns = self.long if seed % 2 else self.short
        least, most = self.long_words if seed % 2 else self.short_words
        while True:
            script = write_script(self.skin, rng, rng.randint(*turns))
            if least <= script.words <= most:
                return script

    def environment(self, seed: int) -> Environment:
        """The task of ``seed``."""
        return ScriptedEnvironment(self.script(seed))
