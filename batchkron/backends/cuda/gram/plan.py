"""Gram matrices of one mode, planned for one device."""

from __future__ import annotations

from typing import Any

import numpy as np

from batchkron.backends.cuda.gram.registers import REGISTERS
from batchkron.backends.cuda.gram.tiles import TILES
from batchkron.backends.cuda.gram.total import total_kernel
from batchkron.backends.cuda.kernel import first_kernel
from batchkron.backends.cuda.kernel_launch import launch_of
from batchkron.backends.cuda.runtime.device import device_limits
from batchkron.backends.cuda.runtime.launch import LaunchSequence, LaunchStep, Place

FAMILIES = (REGISTERS, TILES)
"""The kernel families of Gram matrices of one mode, in order of preference."""


class GramPlan:
    """Sums over all modes but one of tensors of fixed shapes on one device.

    With x (outer, rows, inner) and y (outer, columns, inner), both contiguous and not empty:
    sums[p, q] = Σ conj(x[l, p, r]) y[l, q, r], added in the same order in each call.

    A call needs ``workspace`` bytes of memory beside its result.
    """

    def __init__(self, shape: tuple[int, int, int, int], dtype: np.dtype[Any], device: int) -> None:
        kernel = first_kernel(FAMILIES, (*shape, dtype), device_limits(device))
        if kernel is None:
            raise LookupError("no family of kernels of Gram matrices takes these tensors")
        self._multiply = launch_of(kernel, device, 3)
        parts, (_, rows, columns, _) = kernel.variant, shape
        total = total_kernel(dtype, (rows * columns,), parts)
        self.workspace = total.launch.workspace if parts > 1 else 0
        if self.workspace:
            self._total = launch_of(total, device, 2)

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
