"""Kronecker sums of many systems on a device, applied by one launch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from batchkron.backends.cuda.batch.plan import batch_plan
from batchkron.backends.cuda.choose import kernel_of
from batchkron.backends.cuda.kernel import Kernel
from batchkron.backends.cuda.kernel_launch import launch_of
from batchkron.backends.cuda.kron_sum.systems import SumTiling, sum_factors
from batchkron.backends.cuda.runtime.device import (
    cupy,
    current_device,
    device_errors,
    device_limits,
    load_kernel,
    ready_stream,
    upload,
)
from batchkron.backends.cuda.runtime.hardware import MAX_GRID_YZ
from batchkron.backends.cuda.runtime.launch import BoundedCache, Launch, batch_scalars
from batchkron.backends.cuda.runtime.plan import LinearPlan
from batchkron.backends.kron_sum import ListedSum
from batchkron.spec.batch import batch_shape_of
from batchkron.spec.kron import Array

_MAX_GRID_X = 2**31 - 1  # thread blocks along the first axis of a grid, a limit of CUDA


def sum_plan(factors: Sequence[Array]) -> SumPlan | ListedSum:
    """Return the plan of many systems; those that are tiny, or too large, are a batch list."""
    sizes = tuple(factor.shape[-1] for factor in factors)
    work = sizes, factors[0].dtype, math.prod(batch_shape_of(factors))
    kernel = kernel_of("kron_sum", work, device_limits(current_device()))
    return ListedSum(batch_plan, factors) if kernel is None else SumPlan(factors, kernel)


class SumPlan(LinearPlan):
    """y_s = alpha (A_s1 ⊕ … ⊕ A_sd) x_s on one device.

    A thread block holds a system's vector in shared memory.

    ``factors``: addresses and strides of the matrices, which do not change.
    """

    def __init__(self, factors: Sequence[Array], kernel: Kernel) -> None:
        device, systems = current_device(), batch_shape_of(factors)
        self._kernel = kernel
        self.sizes, self.dtype, self.systems = kernel.work
        self.tiling: SumTiling = kernel.variant
        vectors = (math.prod(self.sizes),)
        super().__init__(device, self.dtype, vectors, vectors, systems)
        self._launches: BoundedCache[tuple[int, int], Launch] = BoundedCache()
        self._scalars = batch_scalars(self.dtype)
        with device_errors():
            columns = self._columns(factors)
            self._matrices = [cupy.empty(array.shape, self.dtype) for array in columns]
            upload(columns, self._matrices)
            self.factors = np.zeros(1, sum_factors(len(factors)))
            self.factors["data"] = [matrices.data.ptr for matrices in self._matrices]
            strides = [m[0].size if len(m) > 1 else 0 for m in self._matrices]
            self.factors["system"] = strides
            load_kernel(kernel.program, device)

    def _columns(self, factors: Sequence[Array]) -> list[Array]:
        """Return the factors as (systems or 1, n, n) arrays in column-major order."""
        arrays = []
        for factor in factors:
            matrices, n = factor.swapaxes(-1, -2), factor.shape[-1]
            if math.prod(factor.shape[:-2]) > 1:
                matrices = np.broadcast_to(matrices, (*self._systems, n, n))
            arrays.append(np.ascontiguousarray(matrices).reshape(-1, n, n))
        return arrays

    def set_factors(self, factors: Sequence[Array]) -> None:
        """Copy new factors of the same shapes in place."""
        upload(self._columns(factors), self._matrices)

    def _start(
        self, x: int, y: int, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        launch = self._launches.get((outer, inner)) or self._prepared(outer, inner)
        launch(ready_stream(self._device), (x, y), self._scalars(alpha, accumulate))

    def _prepared(self, outer: int, inner: int) -> Launch:
        """Return the launch for vectors (outer, N, inner)."""
        if outer > _MAX_GRID_X:
            raise ValueError(f"x has {outer} vectors; expected at most {_MAX_GRID_X}")
        grid, values = (outer, min(inner, MAX_GRID_YZ)), {"factors": self.factors, "inner": inner}
        launch = launch_of(self._kernel, self._device, 2, "accumulate", grid, **values)
        self._launches[outer, inner] = launch
        return launch
