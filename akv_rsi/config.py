"""Frozen configurations. An unknown key is an error that names the known ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar

from akv_rsi.errors import ConfigError

C = TypeVar("C")


def from_mapping(cls: type[C], values: Mapping[str, Any]) -> C:
    """An instance of the configuration ``cls`` from a mapping, such as parsed JSON."""
    known = {f.name for f in fields(cls)}  # type: ignore[arg-type]  # cls is a dataclass
    if unknown := sorted(set(values) - known):
        raise ConfigError(
            f"unknown {cls.__name__} keys: {', '.join(unknown)} (known: {', '.join(sorted(known))})"
        )
    return cls(**values)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Sizes of the engine. Pages and tokens are counts; ``threads`` 0 leaves torch's own setting.

    ``working_set_mib`` bounds the dense copies of running sequences; 0 works from the pages alone.
    For ``restore_passes`` passes after a drop its KV is kept like any other, for a Restore to find.
    On ``device`` "cuda" passes run on kernels, and decode steps as graphs.
    ``repos_mode`` says what a Repos does: to ``view`` keys where they belong, or to ``copy`` them.
    ``kv_dtype`` is how KV lies in the pages: as computed, or rounded to ``int8`` with a scale for
    each token and head.
    """

    page_size: int = 16
    pages: int = 8192
    max_batch: int = 32
    chunk_tokens: int = 2048
    working_set_mib: int = 256
    restore_passes: int = 64
    repos_mode: Literal["view", "copy"] = "view"
    dtype: Literal["float32", "bfloat16"] = "float32"
    kv_dtype: Literal["auto", "int8"] = "auto"
    device: Literal["cpu", "cuda"] = "cpu"
    threads: int = 0
    self_test: bool = True

    def __post_init__(self) -> None:
        for name in ("page_size", "pages", "max_batch", "chunk_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"EngineConfig.{name} must be at least 1, not {getattr(self, name)}"
                )
        for name in ("working_set_mib", "restore_passes", "threads"):
            if getattr(self, name) < 0:
                raise ConfigError(f"EngineConfig.{name} must not be {getattr(self, name)}")
        if self.device not in ("cpu", "cuda"):
            raise ConfigError(f"EngineConfig.device must be cpu or cuda, not {self.device}")
        if self.kv_dtype not in ("auto", "int8"):
            raise ConfigError(f"EngineConfig.kv_dtype must be auto or int8, not {self.kv_dtype}")
        if self.kv_dtype == "int8" and self.device != "cpu" and self.repos_mode == "copy":
            raise ConfigError(
                "EngineConfig.repos_mode copy has no int8 on a GPU: codes do not turn"
            )
        if self.repos_mode not in ("view", "copy"):
            raise ConfigError(
                f"EngineConfig.repos_mode must be view or copy, not {self.repos_mode}"
            )
