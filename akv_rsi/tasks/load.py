"""From a name on the command line to an agent that acts."""

from __future__ import annotations

import json
from pathlib import Path

from akv_rsi.config import EngineConfig
from akv_rsi.engine.files import model_folder
from akv_rsi.errors import ConfigError, ModelLoadError
from akv_rsi.tasks.agent import ChatFormat, WordFormat
from akv_rsi.tasks.bench import Agent
from akv_rsi.tasks.reference.model import load_reference

REFERENCE = "reference"
# Of a model's positions this share is taken to be reliable: a turn must still fit behind it.
RELIABLE = 7 / 8


def find_model(name: str) -> tuple[Path, ChatFormat]:
    """The folder and the chat format of ``reference``, or of a model with a word-level tokenizer.

    ``name`` may be all that `model_folder` knows. `ConfigError` when there is no such model,
    `ModelLoadError` when its files are unusable. Weights are not looked at.
    """
    if name == REFERENCE:
        return load_reference()
    try:
        path = model_folder(name)
    except ModelLoadError as error:
        raise ConfigError(f"unknown model {name!r}: {error} (or use {REFERENCE})") from error
    try:
        positions = json.loads((path / "config.json").read_text())["max_position_embeddings"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelLoadError(f"{path / 'config.json'} is no model's: {error!r}") from error
    return path, WordFormat.load(path, int(positions * RELIABLE))


def load_agent(name: str, config: EngineConfig) -> Agent:
    """The agent, ready to act: it loads the weights."""
    from akv_rsi.engine.engine import Engine
    from akv_rsi.engine.model import load_model

    path, chat = find_model(name)
    return Agent(Engine(load_model(path, config), config), chat)
