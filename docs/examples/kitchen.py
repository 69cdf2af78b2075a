"""A suite of your own: `akv-rsi eval full rolling_drop --suite kitchen:suite` from this folder.

The reference agent knows only the words of the built-in suites, so this one is told in them. With a
model of your own (`--model FOLDER`) the text can be anything.
"""

import random
from dataclasses import dataclass

from akv_rsi.tasks.environment import Environment, Message, Observation

KEYS = ("retry_limit", "cache_ttl", "log_level", "max_depth", "page_size", "time_zone")
VALUES = ("amber", "cobalt", "falcon", "garnet", "meadow", "willow", "zephyr", "otter")


class Kitchen:
    """Opens a file, waits for a build, then edits what the file said."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.key, self.value = rng.choice(KEYS), rng.choice(VALUES)
        self.script = ["open billing.py"] + ["build docs"] * rng.randint(2, 6)
        self.script.append(f"edit {self.key}")
        self.at, self.solved = 0, False

    def reset(self) -> Observation:
        """The opening messages."""
        system = Message(
            "system", "you are a software agent . answer with one command : open , edit"
        )
        return Observation(
            (system, Message("user", f"repair the service . next : {self.script[0]}"))
        )

    def step(self, action: str) -> Observation:
        """One action; whatever it is, the kitchen goes on."""
        asked, self.at = self.script[self.at], self.at + 1
        if asked.startswith("edit"):
            self.solved = action == f"{asked} {self.value}"
            return Observation((), done=True)
        tool, _, call = action.partition(" ")
        opened = asked.startswith("open")
        text = (
            f"billing.py : {self.key} {self.value} ." if opened else "pending . quiet and steady ."
        )
        reply = Message("tool_result", f"{text} next : {self.script[self.at]}", tool, call)
        return Observation((reply,))

    def verify(self) -> bool:
        """Whether the last edit had the right value."""
        return self.solved


@dataclass(frozen=True)
class KitchenSuite:
    """One task a seed."""

    name: str = "kitchen"

    def environment(self, seed: int) -> Environment:
        """The task of ``seed``."""
        return Kitchen(seed)


def suite() -> KitchenSuite:
    """What ``--suite kitchen:suite`` calls."""
    return KitchenSuite()
