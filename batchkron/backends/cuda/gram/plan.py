"""Gram matrices of one mode, planned for one device."""

from __future__ import annotations

from typing import Any

import numpy as np

from batchkron.backends.cuda.gram.registers import small_gram
from batchkron.backends.cuda.gram.tiles import (
    THREADS,
    gram_cut,
    gram_program,
    sized_arguments,
)
from batchkron.backends.cuda.gram.total import Total
from batchkron.backends.cuda.runtime.device import device_limits, load_kernel
from batchkron.backends.cuda.runtime.launch import Launch, LaunchSequence, LaunchStep, Place

__all__ = ["GramPlan", "total_launch"]


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
        _, rows, columns, _ = shape
        self._multiply, parts = _multiply(shape, dtype, device)
        total = Total(dtype, (rows * columns,), parts)
        self.workspace = total.workspace if parts > 1 else 0
        if self.workspace:
            self._total = total_launch(total, device)

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


def _multiply(
    shape: tuple[int, int, int, int], dtype: np.dtype[Any], device: int
) -> tuple[Launch, int]:
    """Return the launch that writes parts of the sums, and how many."""
    limits = device_limits(device)
    small = small_gram(shape, dtype, limits)
    if small is not None:
        kernel, grid = load_kernel(small.program(), device), (small.blocks, 1)
        of_small = small.threads, small.shared_bytes, small.arguments()
        return Launch(kernel, grid, *of_small, 3), small.blocks
    _, rows, columns, _ = shape
    cut = gram_cut(*shape, dtype.itemsize, limits)
    tiles = -(-rows // cut.row_tile) * -(-columns // cut.column_tile)
    kernel = load_kernel(gram_program(dtype, rows, columns, cut), device)
    arguments = sized_arguments(*shape, cut)
    grid = cut.blocks * tiles, 1
    return Launch(kernel, grid, THREADS, cut.shared_bytes, arguments, 3), cut.blocks


def total_launch(total: Total, device: int) -> Launch:
    """Return the launch that adds parts: of the addresses of the parts and of each result.

    Parameters
    ----------
    total : Total
    device : int
    """
    kernel, grid = load_kernel(total.program(), device), (total.blocks, 1)
    addresses = 1 + len(total.counts)
    return Launch(kernel, grid, total.threads, total.shared_bytes, total.arguments(), addresses)
