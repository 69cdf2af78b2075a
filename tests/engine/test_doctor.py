from __future__ import annotations

import json

import pytest

from akv_rsi.cli.doctor import doctor, report
from akv_rsi.errors import ModelLoadError


def test_the_reference_agent_is_sound() -> None:
    found = report("reference")
    (verdict,) = found["architectures"]
    assert verdict["supported"]
    assert verdict["logits"] < 1e-3
    assert found["environment"]["torch"]


def test_it_prints_json_and_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    doctor(model="reference", json=True)
    assert json.loads(capsys.readouterr().out)["architectures"][0]["name"] == "reference"
    doctor(model="reference")
    assert "reference" in capsys.readouterr().out


def test_a_model_that_is_not_there_is_one_clear_line() -> None:
    with pytest.raises(ModelLoadError, match="is not a model directory"):
        doctor(model="/no/such/model")
