"""The page on transcripts names what there is."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from akv_rsi.cli.audit import audit
from akv_rsi.cli.fidelity import fidelity
from akv_rsi.cli.search import search
from akv_rsi.tasks.traces.readers import READERS

PAGE = (Path(__file__).parents[2] / "docs" / "transcripts.md").read_text(encoding="utf-8")


def test_every_format_has_a_row() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == {r.name for r in READERS}


def test_every_option_it_names_exists() -> None:
    commands = (audit, fidelity, search)
    names = {name for command in commands for name in inspect.signature(command).parameters}
    known = {name.replace("_", "-") for name in names} | {"format"}
    assert set(re.findall(r"`--([a-z-]+)", PAGE)) <= known
