"""What differs between a processor and a GPU: passes, and who decodes side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from torch import Tensor

from akv_rsi.config import EngineConfig
from akv_rsi.engine.attention import Segment
from akv_rsi.engine.batch import Batch
from akv_rsi.engine.model import Model
from akv_rsi.engine.pool import PagePool
from akv_rsi.engine.seating import Seating, Seatings
from akv_rsi.engine.sequence import Sequence


class Seats(Protocol):
    """Which sequences decode side by side; see `Seatings`."""

    def __iter__(self) -> Iterator[Seating[Any]]:
        """Groups with somebody in them."""
        ...

    def __contains__(self, sequence: Sequence) -> bool:
        """Whether it has a seat."""
        ...

    def remove(self, sequence: Sequence) -> None:
        """Leaves its seat empty."""
        ...

    def clear(self) -> None:
        """Drops groups that are not worth keeping."""
        ...

    def renew(self) -> None:
        """KV of seated sequences has moved to other slots."""
        ...

    def seat(self, batch: Batch, complete: Iterable[tuple[Sequence, Segment]]) -> None:
        """Seats sequences that have come to decoding."""
        ...


class Backend(Protocol):
    """Runs the passes of one engine."""

    def clear(self) -> None:
        """The engine starts cold."""
        ...

    def seatings(self) -> Seats:
        """Seats for a scheduler."""
        ...

    def batch(self) -> Batch:
        """An empty pass."""
        ...

    def forward(self, batch: Batch) -> Tensor:
        """Logits ``[kept rows, vocabulary]`` of a pass."""
        ...


class ProcessorBackend:
    """Plain torch, with dense copies of the keys of running sequences."""

    def __init__(self, model: Model, config: EngineConfig, pool: PagePool) -> None:
        self._model = model
        self._pool = pool
        self._columns = config.working_set_mib * 2**20 // pool.read_bytes

    def clear(self) -> None:
        """Nothing outlives a pass here but what seats hold."""

    def seatings(self) -> Seatings:
        """See `Backend`."""
        return Seatings(self._columns)

    def batch(self) -> Batch:
        """See `Backend`."""
        return Batch(self._pool, self._model.rotary)

    def forward(self, batch: Batch) -> Tensor:
        """See `Backend`."""
        return self._model.forward(batch)


def open_backend(model: Model, config: EngineConfig, pool: PagePool) -> Backend:
    """The back end for where the model lies."""
    if pool.device.type == "cpu":
        return ProcessorBackend(model, config, pool)
    from akv_rsi.engine.gpu.backend import GpuBackend

    return GpuBackend(model, config, pool)
