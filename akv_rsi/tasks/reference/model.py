"""The reference agent: where it lies, its vocabulary and its span. No weights, no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from akv_rsi.tasks.agent import END, ROLES, UNKNOWN, WordFormat, vocabulary
from akv_rsi.tasks.suites import BUILT_IN, load_suite
from akv_rsi.tasks.suites.words import NOISE, VALUES
from akv_rsi.tasks.suites.world import ScriptedSuite

TRAINED_SPAN = 512
# A turn's new text and its answer must still fit behind what is kept.
RELIABLE_SPAN = 448
MODEL_DIR = Path(__file__).parent / "model"
# What `WordFormat` does to each message, as transformers renders it. Tools are text of the suite.
CHAT_TEMPLATE = f"""\
{{%- for message in messages -%}}
<{{{{ message.role }}}}> {{{{ message.content }}}} {END}{{{{ "\\n" }}}}
{{%- endfor -%}}
{{%- if add_generation_prompt -%}}{ROLES["assistant"]} {{% endif -%}}
"""
TEMPLATE_WORDS = """ready saved pending finished error needs repaired accepted closed not next note
recap : , .""".split()


def load_reference() -> tuple[Path, WordFormat]:
    """The shipped agent: its folder of weights, and its chat format."""
    return MODEL_DIR, WordFormat.load(MODEL_DIR, RELIABLE_SPAN)


def scripted_suites() -> list[ScriptedSuite]:
    """The built-in suites, as the generators they are."""
    suites = [load_suite(name) for name in BUILT_IN]
    return [suite for suite in suites if isinstance(suite, ScriptedSuite)]


def reference_vocabulary() -> dict[str, int]:
    """Every word of the built-in suites, with its id."""
    words = [*VALUES, *NOISE, *TEMPLATE_WORDS]
    for skin in (suite.skin for suite in scripted_suites()):
        words.extend([*skin.places, *skin.keys, *skin.setup, skin.artifact, skin.finish])
        texts = [skin.system, skin.goal, skin.search, skin.view, skin.put, skin.repair]
        words.extend(" ".join([*texts, *skin.poll, *skin.attempt]).split())
    return vocabulary(words)


def tokenizer_file(words: dict[str, int]) -> dict[str, Any]:
    """The content of ``tokenizer.json``: words between spaces."""
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "truncation": None,
        "padding": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": UNKNOWN},
    }


def save_tokenizer(folder: Path, words: dict[str, int]) -> None:
    """Writes ``tokenizer.json`` and what transformers needs to open it and to render chats."""
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_file(words), indent=1) + "\n")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": UNKNOWN}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
