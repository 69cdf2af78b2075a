"""The page for authors of policies says what is so."""

from __future__ import annotations

import re
from pathlib import Path

from akv_rsi.policies.dsl import Context, Segment
from akv_rsi.policies.executor import Limits
from akv_rsi.policies.lint import lint
from akv_rsi.policies.resident import RARE
from akv_rsi.policies.vocabulary import BUILTINS, TARGETS, VERBS

PAGE = (Path(__file__).parents[2] / "docs" / "policies.md").read_text()


def test_the_example_is_a_policy() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    policies = [block for block in blocks if "def policy" in block]
    assert len(policies) == 1
    lint(policies[0])


def test_every_field_verb_and_builtin_is_told() -> None:
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]*)`", PAGE))))
    fields = {n for cls in (Context, Segment) for n in cls.__slots__ if not n.startswith("_")}
    assert fields | VERBS | BUILTINS | TARGETS["engine"] <= words


def test_the_limits_are_those_of_the_code() -> None:
    limits = Limits()
    for said in (
        f"{limits.steps:,} steps",
        f"{limits.recursion} deep",
        f"{limits.memory >> 20} MiB",
        f"{limits.seconds:g} seconds",
    ):
        assert said in " ".join(PAGE.split())
    assert RARE == 4
    assert "at most four" in PAGE
