"""From what a user calls a model to a folder with its files.

A ``.gguf`` file is unpacked once, into a cache under ``$XDG_CACHE_HOME/akv-rsi/models``: reading
the weights from there takes a second, unpacking them a minute.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from packaging.version import Version

from akv_rsi.errors import ModelLoadError

# Of a hub repository, what a model needs.
_FILES = ["*.json", "*.safetensors", "*.model", "*.jinja", "tokenizer*"]

_GEMMA_READ_RIGHT = Version("5.24")


def model_folder(name: str | Path) -> Path:
    """The folder of a model: a local one, that of a ``.gguf`` file, or of a hub id ``owner/name``.

    A hub id is looked up in the local hub cache first, then downloaded. Raises `ModelLoadError`
    when there is no such model, or its file is corrupt or of an unknown architecture.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.suffix == ".gguf":
        return _unpacked(path)
    if path.exists() or str(name).startswith((".", "/", "~")) or str(name).count("/") != 1:
        raise ModelLoadError(
            f"{name} is not a model directory, a .gguf file or a hub id such as owner/name"
        )
    return _hub_folder(str(name))


def one_line(error: Exception) -> str:
    """The first line of what ``error`` says."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars of transformers."""
    from transformers.utils import logging

    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if bars:
            logging.enable_progress_bar()


def _hub_folder(name: str) -> Path:
    from huggingface_hub import snapshot_download

    for local in (True, False):
        try:
            folder = Path(snapshot_download(name, allow_patterns=_FILES, local_files_only=local))
        except (OSError, ValueError) as error:
            reason = one_line(error)
        else:
            if not local or any(folder.glob("*.safetensors")):
                return folder
    raise ModelLoadError(f"{name} is not in the local hub cache and cannot be downloaded: {reason}")


def _unpacked(file: Path) -> Path:
    """The folder with the weights of a ``.gguf`` file in single precision, and its tokenizer."""
    try:
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()[:16]
    except OSError as error:
        raise ModelLoadError(f"{file} cannot be read: {error.strerror}") from error
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "akv-rsi/models"
    folder = cache / f"{file.stem}-{digest}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    # Complete under another name first: a broken-off conversion is never mistaken for a model.
    with tempfile.TemporaryDirectory(dir=cache) as working:
        part = Path(working) / "model"
        _unpack(file, part)
        if not folder.is_dir():  # another process may have been quicker
            shutil.move(part, folder)
    return folder


def check_tokenizer(model_type: str, version: str) -> None:
    """Raises `ModelLoadError` where this transformers misreads the tokenizer in a ``.gguf`` file.

    Version 5.17 splits Gemma's text into about three times as many tokens, and says nothing.
    """
    if model_type.startswith("gemma") and Version(version) < _GEMMA_READ_RIGHT:
        raise ModelLoadError(
            f"transformers {version} misreads the tokenizer of a {model_type} .gguf file: "
            f"install {_GEMMA_READ_RIGHT} or later, or use a folder with safetensors"
        )


def _unpack(file: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, __version__

    where = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    try:
        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(**where)
            packed, info = AutoModelForCausalLM.from_pretrained(
                **where, dtype=torch.float32, output_loading_info=True
            )
    except Exception as error:  # a parser of foreign files raises whatever it runs into
        raise ModelLoadError(f"cannot unpack {file}: {one_line(error)}") from error
    check_tokenizer(packed.config.model_type, __version__)
    if missing := sorted(info["missing_keys"]):
        raise ModelLoadError(f"{file} lacks weights for {', '.join(missing[:3])}")
    # transformers keeps the model flagged as quantised and will not save it: move the weights to
    # one that never was.
    del packed.config.quantization_config
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(packed.config)
    model.load_state_dict(packed.state_dict(), assign=True)
    with quiet():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
