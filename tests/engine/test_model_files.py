"""A model may be named by a folder, a .gguf file or a hub id; all of them end as a folder."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import torch
from gguf import GGUFWriter
from torch import Tensor
from transformers import AutoTokenizer

from akv_rsi.config import EngineConfig
from akv_rsi.engine import files
from akv_rsi.engine.engine import Engine
from akv_rsi.engine.model import load_model
from akv_rsi.errors import ModelLoadError
from akv_rsi.types import OpHistory

from .tiny import tiny_llama

CONFIG = EngineConfig(pages=16)
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]
TENSORS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write_gguf(path: Path, *, without: str = "") -> Path:
    """`tiny_llama` as llama.cpp would have it, with a tokenizer of letters and digits."""
    model = tiny_llama()
    config, writer = model.config, GGUFWriter(str(path), "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    words = [chr(ord("A") + i) for i in range(config.vocab_size - 3)]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([*words, "AB", "<s>", "</s>"])
    writer.add_token_types([1] * (config.vocab_size - 2) + [3, 3])
    writer.add_token_merges(["A B"])
    writer.add_bos_token_id(config.vocab_size - 2)
    writer.add_eos_token_id(config.vocab_size - 1)
    for name, tensor in model.state_dict().items():
        if without not in name or not without:
            writer.add_tensor(*gguf_tensor(name, tensor, config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_tensor(name: str, tensor: Tensor, config: Any) -> tuple[str, Any]:
    """Its name there, and its values: rotary pairs lie side by side, not half a head apart."""
    whole = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    stem = name.removesuffix(".weight")
    if stem in whole:
        return f"{whole[stem]}.weight", tensor.numpy()
    _, _, layer, part = stem.split(".", 3)
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    kind = TENSORS[part]
    if kind in heads:
        split = tensor.view(heads[kind], 2, -1, tensor.shape[1])
        tensor = split.transpose(1, 2).reshape(tensor.shape)
    return f"blk.{layer}.{kind}.weight", tensor.contiguous().numpy()


def test_a_gguf_file_gives_the_logits_of_the_model_it_was_made_from(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf")
    got = Engine(load_model(file, CONFIG), CONFIG).logits(TOKENS, OpHistory())
    expected = tiny_llama()(torch.tensor([TOKENS])).logits[0]
    assert (got - expected).abs().max() < 1e-4
    tokenizer = AutoTokenizer.from_pretrained(files.model_folder(file))
    assert tokenizer.encode("ABCA", add_special_tokens=False) == [58, 2, 0]


def test_it_is_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_gguf(tmp_path / "tiny.gguf")
    folder = files.model_folder(file)
    monkeypatch.setattr(files, "_unpack", _never)
    shutil.copy(file, tmp_path / "elsewhere.gguf")
    assert files.model_folder(file) == folder
    with pytest.raises(AssertionError, match="unpacked"):
        files.model_folder(tmp_path / "elsewhere.gguf")
    assert [folder] == list(folder.parent.iterdir()), "nothing half done is left behind"


def _never(*_: Any) -> None:
    raise AssertionError("it was unpacked again")


@pytest.mark.parametrize("fault", ["empty", "garbage", "truncated", "lacking", "missing"])
def test_an_unusable_gguf_file_is_one_clear_line(tmp_path: Path, fault: str) -> None:
    file = tmp_path / "tiny.gguf"
    if fault in ("truncated", "lacking"):
        write_gguf(file, without="layers.1.self_attn.k_proj" if fault == "lacking" else "")
    if fault == "truncated":
        file.write_bytes(file.read_bytes()[:-5000])
    elif fault in ("empty", "garbage"):
        file.write_bytes(b"" if fault == "empty" else b"GGUF, but not really" * 9)
    with pytest.raises(ModelLoadError, match=r"tiny\.gguf") as error:
        load_model(file, CONFIG)
    assert "\n" not in str(error.value)
    cache = tmp_path / "cache/akv-rsi/models"
    assert not cache.exists() or not list(cache.iterdir())


def test_a_hub_id_is_found_in_the_local_hub_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--someone--tiny"
    revision = "0" * 40
    tiny_llama().save_pretrained(repository / "snapshots" / revision)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(revision)
    assert load_model("someone/tiny", CONFIG).proof.logits < 1e-4


def test_a_hub_id_that_cannot_be_had_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelLoadError, match="someone/tiny is not in the local hub cache") as error:
        load_model("someone/tiny", CONFIG)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("model_type", "version", "right"),
    [("gemma3_text", "5.17.0", False), ("gemma3_text", "5.24.0", True), ("llama", "5.17.0", True)],
)
def test_a_tokenizer_that_would_be_misread_is_refused(
    model_type: str, version: str, right: bool
) -> None:
    with nullcontext() if right else pytest.raises(ModelLoadError, match=r"install 5\.24"):
        files.check_tokenizer(model_type, version)
