"""From a name on the command line to an agent that acts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from akv_rsi.config import EngineConfig
from akv_rsi.engine.files import model_folder
from akv_rsi.errors import ConfigError, ModelLoadError
from akv_rsi.tasks.agent import ChatFormat, WordFormat
from akv_rsi.tasks.bench import Agent
from akv_rsi.tasks.pretrained import TemplateFormat
from akv_rsi.tasks.reference.model import MODEL_DIR, RELIABLE_SPAN, load_reference
from akv_rsi.tasks.template import ChatTemplate

if TYPE_CHECKING:
    from akv_rsi.engine.engine import Engine

REFERENCE = "reference"
# Of a model's positions this share is taken to be reliable: a turn must still fit behind it.
RELIABLE = 7 / 8


def find_model(name: str) -> tuple[Path, ChatFormat]:
    """The folder and the chat format of ``reference``, or of any model with a chat template.

    ``name`` may be all that `model_folder` knows. `ConfigError` when there is no such model,
    `ModelLoadError` when its files are unusable. Weights are not looked at.
    """
    if name == REFERENCE:
        return load_reference()
    path, span = find_span(name)
    if _is_word_level(path / "tokenizer.json"):
        return path, WordFormat.load(path, span)
    return path, TemplateFormat.load(path, span)


def find_span(name: str) -> tuple[Path, int]:
    """The folder of a model, and the positions within which it can be trusted; see `find_model`."""
    if name == REFERENCE:
        return MODEL_DIR, RELIABLE_SPAN
    try:
        path = model_folder(name)
    except ModelLoadError as error:
        raise ConfigError(f"unknown model {name!r}: {error} (or use {REFERENCE})") from error
    try:
        positions = json.loads((path / "config.json").read_text())["max_position_embeddings"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelLoadError(f"{path / 'config.json'} is no model's: {error!r}") from error
    return path, int(positions * RELIABLE)


def _is_word_level(file: Path) -> bool:
    """Whether a tokenizer is of the reference agent's kind."""
    try:
        return bool(json.loads(file.read_text())["model"]["type"] == "WordLevel")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelLoadError(f"{file} is not a tokenizer: {error!r}") from error


def load_agent(name: str, config: EngineConfig) -> Agent:
    """The agent, ready to act: it loads the weights."""
    path, chat = find_model(name)
    return Agent(load_engine(path, config), chat)


def load_engine(path: Path, config: EngineConfig) -> Engine:
    """The engine on the weights of a model folder; `ConfigError` when its device is not there."""
    from akv_rsi.engine.engine import Engine
    from akv_rsi.engine.model import load_model

    _check_device(config)
    return Engine(load_model(path, config), config)


def shaped_engine(shape: str, path: Path, config: EngineConfig, seed: int = 0) -> Engine:
    """An engine on random weights in a shape of `SHAPES`, for the tokenizer in the folder ``path``.

    At temperature 0 each token it answers is a piece of text, and none ends an answer.
    `ConfigError` for an unknown shape, and for a tokenizer of more tokens than it has.
    """
    from akv_rsi.engine.bench.shape import SHAPES, random_llama, speak_only
    from akv_rsi.engine.engine import Engine
    from akv_rsi.engine.model import Model

    _check_device(config)
    if shape not in SHAPES:
        raise ConfigError(f"unknown shape {shape!r}: use {', '.join(SHAPES)}")
    template = ChatTemplate.load(path)
    words, known = template.words(), SHAPES[shape]["vocab_size"]
    if words[-1] >= known:
        raise ConfigError(f"the shape {shape} has {known} tokens, fewer than the tokenizer")
    hf = random_llama(SHAPES[shape], config, seed)
    speak_only(hf, words)
    return Engine(Model.from_pretrained(hf, config), config)


def _check_device(config: EngineConfig) -> None:
    import torch

    if config.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("there is no CUDA device here: use --device cpu")
