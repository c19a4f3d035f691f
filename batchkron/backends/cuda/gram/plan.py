"""Gram matrices of one mode, planned for one device."""

from __future__ import annotations

import math
from functools import lru_cache
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
from batchkron.backends.cuda.runtime.device import (
    current_device,
    device_errors,
    device_limits,
    load_kernel,
    ready_stream,
)
from batchkron.backends.cuda.runtime.launch import Launch

__all__ = ["GramPlan", "gram_plan"]


class GramPlan:
    """Sums over all modes but one of tensors of fixed shapes on one device.

    With x (outer, rows, inner) and y (outer, columns, inner), both contiguous:
    sums[p, q] = Σ conj(x[l, p, r]) y[l, q, r], added in the same order in each call.

    Attributes
    ----------
    workspace : int
        Elements of memory that a call needs beside its result.
    """

    def __init__(self, shape: tuple[int, int, int, int], dtype: np.dtype[Any], device: int) -> None:
        outer, rows, columns, inner = shape
        cut = gram_cut(*shape, dtype.itemsize, device_limits(device))
        self._device, count = device, rows * columns
        self.workspace = count * cut.blocks if cut.blocks > 1 else 0
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

    def run(self, x: int, y: int, sums: int, workspace: int) -> None:
        """Write the sums; all four are addresses on the device, which is the current one."""
        with device_errors():
            stream = ready_stream(self._device)
            if not self.workspace:
                self._multiply(stream, (x, y, sums), b"")
                return
            self._multiply(stream, (x, y, workspace), b"")
            self._total(stream, (workspace, sums), b"")


@lru_cache(maxsize=256)
def _planned(shape: tuple[int, int, int, int], dtype: np.dtype[Any], device: int) -> GramPlan:
    return GramPlan(shape, dtype, device)


def gram_plan(outer: int, rows: int, columns: int, inner: int, dtype: np.dtype[Any]) -> GramPlan:
    """Return the plan for tensors that are not empty, on the current device."""
    return _planned((outer, rows, columns, inner), dtype, current_device())
