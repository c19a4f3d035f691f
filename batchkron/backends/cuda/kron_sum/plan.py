"""Kronecker sums of many systems on a device, applied by one launch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from batchkron.backends.cuda.batch.plan import batch_plan
from batchkron.backends.cuda.choose import kernel_of
from batchkron.backends.cuda.kernel_launch import launch_of
from batchkron.backends.cuda.kron_sum.systems import SumShape, SumTiling, sum_factors
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
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


class SumPlan(LinearPlan):
    """y_s = alpha (A_s1 ⊕ … ⊕ A_sd) x_s on one device.

    A thread block holds a system's vector in shared memory. Systems that do not fit there, or are
    tiny, are evaluated as a batch list instead.

    ``factors``: addresses and strides of the matrices, which do not change.
    """

    def __init__(self, factors: Sequence[Array]) -> None:
        device, self._shape = current_device(), batch_shape_of(factors)
        self.sizes = tuple(factor.shape[-1] for factor in factors)
        vectors = (math.prod(self.sizes),)
        super().__init__(device, factors[0].dtype, vectors, vectors, self._shape)
        self.dtype, self.systems = self._dtype, math.prod(self._shape)
        shape = SumShape(self.sizes, self.dtype, self.systems)
        self._kernel = kernel_of("kron_sum", shape, device_limits(device))
        self._listed = ListedSum(batch_plan, factors) if self._kernel is None else None
        if self._kernel is None:
            return
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
            load_kernel(self._kernel.program, device)

    @property
    def tiling(self) -> SumTiling | None:
        """The tiling; None if a batch list is used."""
        return None if self._kernel is None else self._kernel.variant

    def _columns(self, factors: Sequence[Array]) -> list[Array]:
        """Return the factors as (systems or 1, n, n) arrays in column-major order."""
        arrays = []
        for factor in factors:
            matrices, n = factor.swapaxes(-1, -2), factor.shape[-1]
            if math.prod(factor.shape[:-2]) > 1:
                matrices = np.broadcast_to(matrices, (*self._shape, n, n))
            arrays.append(np.ascontiguousarray(matrices).reshape(-1, n, n))
        return arrays

    def set_factors(self, factors: Sequence[Array]) -> None:
        """Copy new factors of the same shapes in place."""
        if self._listed is not None:
            self._listed.set_factors(factors)
        else:
            upload(self._columns(factors), self._matrices)

    def reserve(self, outer: int, inner: int) -> None:
        """Compile and allocate what `run` will need."""
        if self._listed is not None:
            self._listed.plan.reserve(outer, inner)  # type: ignore[attr-defined]

    def run(
        self,
        x: DeviceArray,
        y: DeviceArray,
        outer: int,
        inner: int,
        alpha: complex,
        accumulate: bool,
    ) -> None:
        """Map x (outer, N, inner) to alpha A x, added to y or overwriting it."""
        run = super().run if self._listed is None else self._listed.run
        run(x, y, outer, inner, alpha, accumulate)

    def _start(
        self, x: int, y: int, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        launch = self._launches.get((outer, inner)) or self._prepared(outer, inner)
        launch(ready_stream(self._device), (x, y), self._scalars(alpha, accumulate))

    def _prepared(self, outer: int, inner: int) -> Launch:
        """Return the launch for vectors (outer, N, inner)."""
        if outer > _MAX_GRID_X:
            raise ValueError(f"x has {outer} vectors; expected at most {_MAX_GRID_X}")
        assert self._kernel is not None
        grid, values = (outer, min(inner, MAX_GRID_YZ)), {"factors": self.factors, "inner": inner}
        launch = launch_of(self._kernel, self._device, 2, "accumulate", grid, **values)
        self._launches[outer, inner] = launch
        return launch

    def _fast_path(self, x: DeviceArray, out: DeviceArray) -> Callable[[int, int], None] | None:
        return None if self._listed is not None else super()._fast_path(x, out)
