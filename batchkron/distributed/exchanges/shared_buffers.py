"""Buffers of each rank that all ranks can write to: what products store results in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from batchkron.distributed.communication.communicator import Communicator
from batchkron.spec.kron import Array

__all__ = ["SharedBuffers"]


class SharedBuffers:
    """Two buffers of each rank, which exchanges take in turn; they are made on the first request.

    Buffers that a captured CUDA graph writes to are kept as long as this object; all streams use
    the same ones.

    ``communicator``: one whose ranks can write to each other's memory.
    ``module``: NumPy or CuPy.
    """

    def __init__(self, communicator: Communicator, dtype: np.dtype[Any], module: Any) -> None:
        self._communicator, self._dtype, self._module = communicator, dtype, module
        self._known: dict[int, list[Array]] = {}
        self._captured: list[list[Array]] = []

    def take(self, number: int, elements: int) -> list[Array]:
        """Return a buffer of each rank, of at least so many elements; all ranks ask for the same.

        ``number`` ({0, 1}).

        Returns list of ndarray, flat: in the order of ranks. Raises `RuntimeError` if a CUDA graph
        is captured and there is no such buffer yet. `MemoryError` if a rank has too little memory;
        on every rank.
        """
        known = self._known.get(number)
        capturing = self._is_capturing()
        if known is None or known[0].size < elements:
            if capturing:
                raise RuntimeError(
                    "memory of all ranks is needed, which cannot be allocated while a graph is "
                    "captured; apply the same operator to as many vectors once before the capture"
                )
            known = self._communicator.share_memory(elements, self._dtype, self._module)
            self._known[number] = known
        if capturing and not any(known is kept for kept in self._captured):
            self._captured.append(known)
        return known

    def take_blocks(self, outer: int, counts: Sequence[int], size: int) -> list[Array]:
        """Return a buffer of each rank as (outer, its count of blocks, size); see `take`."""
        memories = self.take(0, outer * size * max(counts))
        return [
            memory[: outer * count * size].reshape(outer, count, size)
            for memory, count in zip(memories, counts, strict=True)
        ]

    def _is_capturing(self) -> bool:
        """Whether the current stream of the device captures a graph."""
        if self._module is np:
            return False
        return bool(self._module.cuda.get_current_stream().is_capturing())
