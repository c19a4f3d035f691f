"""Gradients of the values of Kronecker-sparse matrices, planned for one device."""

from __future__ import annotations

import numpy as np

from batchkron.backends.cuda.gram.plan import total_launch
from batchkron.backends.cuda.gram.total import Total
from batchkron.backends.cuda.kron_sparse.value_gradients import GradientShape, gradient_kernel
from batchkron.backends.cuda.runtime.device import device_limits, load_kernel
from batchkron.backends.cuda.runtime.launch import Launch, LaunchStep, Place

__all__ = ["GradientPlan"]


class GradientPlan:
    """Sums over vectors n of gradient[n, i, k, j] x[n, i, l, j], for arrays of fixed shapes.

    x and the gradient are contiguous; sums are added in the same order in each call.

    Attributes
    ----------
    workspace : int
        Bytes of memory that a call needs beside its result.
    """

    def __init__(self, shape: GradientShape, device: int) -> None:
        kernel = gradient_kernel(shape, device_limits(device))
        self.workspace = kernel.workspace
        how, code = kernel.launch(), load_kernel(kernel.program(), device)
        grid = how.blocks, 1
        self._sums = Launch(code, grid, how.threads, how.shared_bytes, kernel.arguments(), 3)
        if self.workspace:
            total = Total(np.dtype(shape.dtype), (shape.values,), kernel.parts)
            self._total = total_launch(total, device)

    def steps(self, x: Place, gradient: Place, sums: Place, workspace: Place) -> list[LaunchStep]:
        """Return the launches that write the sums, (a, b, c, d)."""
        if not self.workspace:
            return [LaunchStep.of(self._sums, (x, gradient, sums))]
        return [
            LaunchStep.of(self._sums, (x, gradient, workspace)),
            LaunchStep.of(self._total, (workspace, sums)),
        ]
