"""Gram matrices of one mode, planned for one device."""

from __future__ import annotations

from typing import Any

import numpy as np

from batchkron.backends.cuda.gram.registers import REGISTERS
from batchkron.backends.cuda.gram.tiles import TILES, GramWork
from batchkron.backends.cuda.gram.total import Total
from batchkron.backends.cuda.kernel import first_kernel
from batchkron.backends.cuda.runtime.device import device_limits, load_kernel
from batchkron.backends.cuda.runtime.launch import Launch, LaunchSequence, LaunchStep, Place

__all__ = ["GramPlan", "total_launch"]

FAMILIES = (REGISTERS, TILES)
"""The kernel families of Gram matrices of one mode, in order of preference."""


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
        kernel = first_kernel(FAMILIES, GramWork(*shape, dtype), device_limits(device))
        if kernel is None:
            raise LookupError("no family of kernels of Gram matrices takes these tensors")
        how, code = kernel.launch, load_kernel(kernel.program, device)
        shared, arguments = how.shared_bytes, kernel.arguments
        self._multiply = Launch(code, (how.blocks, 1), how.threads, shared, arguments, 3)
        parts, (_, rows, columns, _) = kernel.variant, shape
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
