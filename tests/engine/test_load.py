"""What is loaded is whole, and what cannot be run exactly is refused with its reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from akv_rsi.config import EngineConfig
from akv_rsi.engine.architectures import ARCHITECTURES, survey
from akv_rsi.engine.engine import Engine
from akv_rsi.engine.model import load_model
from akv_rsi.errors import ModelLoadError
from akv_rsi.types import OpHistory

from .tiny import tiny_llama

CONFIG = EngineConfig(pages=16)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_llama().save_pretrained(tmp_path)
    return tmp_path


def test_a_saved_model_loads_and_proves_itself(folder: Path) -> None:
    model = load_model(folder, CONFIG)
    assert 0 < model.proof.keys < 1e-4
    assert model.proof.logits < 1e-4
    logits = Engine(model, CONFIG).logits([1, 2, 3], OpHistory())
    assert logits.shape == (3, model.vocabulary)


def test_bfloat16_passes_the_self_test_too(folder: Path) -> None:
    config = EngineConfig(pages=16, dtype="bfloat16")
    model = load_model(folder, config)
    assert model.hf.dtype == torch.bfloat16
    engine = Engine(model, config)
    tokens = list(range(40))
    stepwise = engine.forced(tokens, OpHistory(), [10, 20, 21, 22])
    assert (stepwise - engine.logits(tokens, OpHistory())).abs().max() < 0.5


@pytest.mark.parametrize("fault", ["truncated", "garbage", "missing", "lacking", "misshapen"])
def test_unusable_weights_are_refused(folder: Path, fault: str) -> None:
    file = folder / "model.safetensors"
    weights = load_file(file)
    if fault == "truncated":
        file.write_bytes(file.read_bytes()[:-100])
    elif fault == "garbage":
        file.write_bytes(b"not a model")
    elif fault == "missing":
        file.unlink()
    elif fault == "lacking":
        del weights["model.layers.1.self_attn.k_proj.weight"]
        save_file(weights, file, {"format": "pt"})
    else:
        weights["model.norm.weight"] = torch.ones(7)
        save_file(weights, file, {"format": "pt"})
    with pytest.raises(ModelLoadError) as error:
        load_model(folder, CONFIG)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", ["{", "{}", json.dumps({"model_type": "unheard_of"})])
def test_an_unusable_configuration_is_refused(folder: Path, content: str) -> None:
    (folder / "config.json").write_text(content)
    with pytest.raises(ModelLoadError):
        load_model(folder, CONFIG)


@pytest.mark.parametrize("name", ["/no/such/folder", "./neither", "config.json"])
def test_a_path_without_a_model_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelLoadError):
        load_model(tmp_path / name, CONFIG)


@pytest.mark.slow
def test_the_survey_of_architectures() -> None:
    verdicts = {verdict.name: verdict for verdict in survey()}
    assert verdicts.keys() == ARCHITECTURES.keys()
    refused = {name for name, verdict in verdicts.items() if not verdict.supported}
    assert refused == {"Llama, dynamic scaling"}
    assert "dynamic" in verdicts["Llama, dynamic scaling"].reason
    for verdict in verdicts.values():
        if verdict.supported:
            assert verdict.keys is not None
            assert 0 < verdict.keys < 1e-4
            assert verdict.logits is not None
            assert verdict.logits < 1e-4
