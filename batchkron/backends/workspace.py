"""Workspace of an operator on the CPU, separate for each thread."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from batchkron.spec.kron import Array


class Workspace(threading.local):
    """Memory that is kept between calls: a second call of the same size allocates nothing."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def array(self, elements: int, dtype: np.dtype[Any]) -> Array:
        """Return uninitialised memory for ``elements`` values; all calls share the same memory."""
        size = elements * dtype.itemsize
        if size > len(self._memory):
            self._memory = np.empty(size, np.uint8)
        return self._memory[:size].view(dtype)
