"""Exported modules: readable, importable in plain Python, and the same policy when read back."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conversations import recorded

from akv_rsi.errors import CapabilityError, ConfigError, LintError
from akv_rsi.policies import library
from akv_rsi.policies.export import Provenance, Score, export_module
from akv_rsi.policies.open import open_policy, read_policy
from akv_rsi.policies.parity import ParityProof, check_parity
from akv_rsi.policies.spec import PolicySpec

PROVENANCE = Provenance(
    origin="run 7, candidate 12, seed 0",
    command='akv-rsi search --budget 0.8 --note """\\x"""',
    reliable_span=512,
    scores=(Score("test", 0.95, (0.91, 0.98), 0.78, (0.76, 0.79), 96),),
    parity=ParityProof(40, "ab" * 32),
)


def exported(spec: PolicySpec, folder: Path) -> Path:
    file = folder / "found.py"
    file.write_text(export_module(spec, PROVENANCE))
    return file


def loaded(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", library.PROGRAMS)
def test_the_module_decides_as_the_policy(name: str, tmp_path: Path) -> None:
    values = {t.name: int(t.low) + 1 for t in library.tunables(name)}
    spec = library.spec(name, **values)
    again = read_policy(exported(spec, tmp_path))
    assert not again.trusted
    assert again.tunables == ()
    with open_policy(spec) as policy, open_policy(again) as copy:
        for snapshot in recorded(4, policy=policy):
            assert copy.decide(snapshot) == policy.decide(snapshot)
        assert copy.capabilities == policy.capabilities
    assert check_parity(again, recorded(4)).digest == check_parity(spec, recorded(4)).digest


def test_the_module_says_where_it_comes_from(tmp_path: Path) -> None:
    module = loaded(exported(library.spec("rolling_drop_refresh", keep=9), tmp_path))
    doc = module.__doc__ or ""
    for line in (
        "rolling_drop_refresh: a KV-cache policy, exported by akv-rsi.",
        "Origin: run 7, candidate 12, seed 0",
        "Tunables (frozen below): keep = 9",
        "    test         0.950 [0.910, 0.980]   0.780 [0.760, 0.790]   96",
        "Parity: sandbox and plain Python decided alike on 40 recorded contexts",
        "Requires: drop, refresh, repos, tokenizer",
        "Notes of its author:",
        "Rolling drop with refresh",
    ):
        assert line in doc
    assert module.KEEP == 9
    assert not hasattr(module, "tunable")
    assert sorted(module.CAPABILITIES) == ["drop", "refresh", "repos", "tokenizer"]


def test_the_module_imports_in_plain_python_without_torch(tmp_path: Path) -> None:
    file = exported(library.spec("rolling_drop"), tmp_path)
    script = f"""
import runpy, sys
module = runpy.run_path({str(file)!r})
request = module["prepare_request"]({{"messages": [{{"role": "user", "content": "hi"}}]}})
assert request["drop_message"] == {{}}, request
print(sorted({{"torch", "transformers", "pydantic_monty"}} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() in ("[]", "['pydantic_monty']")


def test_policy_files_are_typed(tmp_path: Path) -> None:
    good = exported(library.spec("rolling_drop_refresh"), tmp_path)
    bad = tmp_path / "bad.py"
    head = "from akv_rsi.policies.dsl import Context\n\n\ndef policy(ctx: Context) -> None:\n"
    bad.write_text(f"{head}    print(ctx.segments[0].text + 1)\n")
    run = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", good, bad]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert "bad.py:5: error: Unsupported operand types" in done.stdout
    assert "Found 1 error in 1 file (checked 2 source files)" in done.stdout


def test_what_cannot_be_exported_or_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no program"):
        export_module(library.spec("trim"), PROVENANCE)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_policy(tmp_path / "missing.py")
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_policy(tmp_path / "binary.py")
    (tmp_path / "bad.py").write_text("import os\n")
    with pytest.raises(LintError, match="line 1: import of os"):
        read_policy(tmp_path / "bad.py")


def chat(*results: str) -> list[dict[str, Any]]:
    """A system and a user message, then a call and its result for each of ``results``."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "you are an agent"},
        {"role": "user", "content": [{"type": "text", "text": "repair it"}]},
    ]
    for number, result in enumerate(results):
        function = {"name": "open", "arguments": f'{{"file": "{result}"}}'}
        call = {"id": f"c{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": result})
    return messages


def count(messages: Sequence[Any]) -> int:
    return 10 * len(messages)


def prepared(
    name: str, messages: list[dict[str, Any]], folder: Path, **more: Any
) -> dict[str, Any]:
    values = {"keep": 1} if name.startswith("rolling") else {}
    module = loaded(exported(library.spec(name, **values), folder))
    payload = {"model": "m", "messages": messages}
    request: dict[str, Any] = module.prepare_request(payload, **more)
    assert payload == {"model": "m", "messages": messages}
    assert {key: request.pop(key) for key in payload} == payload
    return request


def test_drops_are_written_by_message_and_cumulative(tmp_path: Path) -> None:
    messages = chat("a", "b", "c")
    assert prepared("rolling_drop_repos", messages, tmp_path) == {
        "drop_message": {"4": [3], "6": [5]},
        "reposition": [4, 6],
    }
    # The same conversation two messages earlier: its operations come first in those above.
    assert prepared("rolling_drop_repos", messages[:-2], tmp_path) == {
        "drop_message": {"4": [3]},
        "reposition": [4],
    }
    assert prepared("rolling_drop", messages, tmp_path, count_tokens=count) == {
        "drop_message": {"4": [3], "6": [5]},
        "reposition": [],
    }


def test_supersession_and_tags_are_read_from_messages(tmp_path: Path) -> None:
    messages = chat("a", "b", "a")
    request = prepared("supersede_aware", messages, tmp_path, count_tokens=count)
    assert request["drop_message"] == {"6": [3]}
    messages[3]["content"] = "<ephemeral_observation>pending</ephemeral_observation>"
    assert prepared("ephemeral_tags", messages, tmp_path)["drop_message"] == {"4": [3]}


def test_refresh_is_written_in_tokens(tmp_path: Path) -> None:
    messages = chat("alpha", "beta")
    messages[4]["content"] = "alpha is fine"
    assert prepared("rolling_drop_refresh", messages, tmp_path, count_tokens=count) == {
        "cache_ops": [
            {"op": "drop", "boundary": 50, "ranges": [[30, 40]]},
            {"op": "refresh", "boundary": 50, "ranges": [[40, 50]]},
        ]
    }


def test_stretches_are_written_in_tokens(tmp_path: Path) -> None:
    request = prepared(
        "sinks_window", chat(*"abcdef"), tmp_path, count_tokens=lambda m: 100 * len(m)
    )
    assert request["cache_ops"][:2] == [
        {"op": "drop", "boundary": 700, "ranges": [[200, 288]]},
        {"op": "repos", "boundary": 700},
    ]


def test_what_a_client_cannot_know_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        CapabilityError, match="needs count_tokens, since it uses refresh, tokenizer"
    ):
        prepared("rolling_drop_refresh", chat("a"), tmp_path)
    source = "def policy(ctx):\n    x = ctx.cost_so_far\n"
    module = loaded(exported(PolicySpec("x", source=source), tmp_path))
    with pytest.raises(CapabilityError, match="cannot know cost"):
        module.prepare_request({"messages": chat("a")})
    with pytest.raises(ConfigError, match="no messages"):
        prepared("full", [], tmp_path)
    with pytest.raises(ConfigError, match="role 'wizard'"):
        prepared("full", [{"role": "wizard", "content": ""}], tmp_path)
