"""Gram matrices of one mode, planned for one device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from batchkron.backends.cuda.gram.kernel import (
    SHARES,
    THREADS,
    gram_cut,
    gram_program,
    sized_arguments,
    total_arguments,
    total_program,
)
from batchkron.backends.cuda.runtime.device import device_limits, load_kernel
from batchkron.backends.cuda.runtime.launch import Launch, LaunchSequence, LaunchStep, Place

__all__ = ["GramPlan"]


class GramPlan:
    """Sums over all modes but one of tensors of fixed shapes on one device.

    With x (outer, rows, inner) and y (outer, columns, inner), both contiguous and not empty:
    sums[p, q] = Σ conj(x[l, p, r]) y[l, q, r], added in the same order in each call.

    Attributes
    ----------
    workspace : int
        Bytes of memory that a call needs beside its result.
    """

    def __init__(self, shape: tuple[int, int, int, int], dtype: np.dtype[Any], device: int) -> None:
        outer, rows, columns, inner = shape
        cut = gram_cut(*shape, dtype.itemsize, device_limits(device))
        count = rows * columns
        self.workspace = count * cut.blocks * dtype.itemsize if cut.blocks > 1 else 0
        tiles = -(-rows // cut.row_tile) * -(-columns // cut.column_tile)
        arguments = sized_arguments(outer, rows, columns, inner, cut)
        kernel = load_kernel(gram_program(dtype, rows, columns, cut), device)
        self._multiply = Launch(
            kernel, (cut.blocks * tiles, 1), THREADS, cut.shared_bytes, arguments, 3
        )
        if self.workspace:
            total = np.zeros(1, total_arguments())
            total["count"], total["blocks"] = count, cut.blocks
            grid = math.ceil(count / (THREADS // SHARES)), 1
            kernel = load_kernel(total_program(dtype), device)
            self._total = Launch(kernel, grid, THREADS, THREADS * dtype.itemsize, total, 2)

    def steps(self, x: Place, y: Place, sums: Place, workspace: Place) -> list[LaunchStep]:
        """Return the launches that write the sums."""
        if not self.workspace:
            return [LaunchStep.of(self._multiply, (x, y, sums))]
        return [
            LaunchStep.of(self._multiply, (x, y, workspace)),
            LaunchStep.of(self._total, (workspace, sums)),
        ]

    def sequence(self) -> LaunchSequence:
        """Return the launches; a call passes the addresses of x, y, the sums and the workspace."""
        return LaunchSequence(self.steps(*map(Place, range(4))), 4)
