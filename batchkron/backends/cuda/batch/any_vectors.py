"""Batch lists of any shape; results between a product's steps are kept in buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from batchkron.backends.cuda.batch.general import General, GeneralVariant
from batchkron.backends.cuda.batch.kernel import BatchKernel, BatchShape
from batchkron.backends.cuda.general_kernel import Tiling, batch_arguments
from batchkron.backends.cuda.kernel_family import enabled
from batchkron.backends.cuda.runtime.arguments import FACTOR
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    Workspaces,
    check_device,
    cupy,
    device_errors,
    device_limits,
    load_kernel,
    ready_stream,
    runtime,
)
from batchkron.backends.cuda.runtime.hardware import MAX_GRID_YZ, DeviceLimits
from batchkron.backends.cuda.runtime.launch import BoundedCache, Launch, batch_scalars
from batchkron.backends.cuda.steps import STEP, has_fixed_steps

_FAMILY = General()


class ListBatch:
    """A batch list on the device, which can be applied to any number of vectors."""

    def __init__(self, shape: BatchShape, device: int, arrays: dict[str, Any]) -> None:
        """Take the device arrays "ids", "inputs", "outputs" and "starts"."""
        self.shape = shape
        self.device = device
        self._arrays = arrays
        self._workspaces = Workspaces()
        self._kernels: dict[int, tuple[BatchKernel, Any]] = {}
        self._launches: BoundedCache[tuple[int, int], tuple[Launch, int]] = BoundedCache()
        self._scalars = batch_scalars(shape.dtype)
        fixed = has_fixed_steps(shape.steps)
        self._arguments = np.zeros(1, batch_arguments(shape.dtype, len(shape.steps), fixed))
        for key, array in arrays.items():
            self._arguments[key] = array.data.ptr
        for key in ("products", "systems", "num_inputs", "num_outputs"):
            self._arguments[key] = getattr(shape, key)
        self._arguments["input_size"] = shape.input_size
        self._arguments["output_size"] = shape.output_size

    def set_weights(self, weights: DeviceArray) -> None:
        """Set the weights, shape (systems or 1, products); before, all weights are 1."""
        self._launches.clear()
        self._arguments["weights"] = weights.data.ptr
        self._arguments["weight_system"] = self.shape.products if len(weights) > 1 else 0

    def set_factors(self, factors: Sequence[tuple[int, int, int, int, int]]) -> None:
        """Set each step's matrices: address and strides, as in `arguments.FACTOR`."""
        self._launches.clear()
        if has_fixed_steps(self.shape.steps):
            self._arguments["steps"]["factors"] = list(factors)
            return
        steps = np.array([(s.L, s.C, s.K, s.R) for s in self.shape.steps], STEP)
        table = np.array(list(factors), FACTOR)
        self._arrays["step table"] = cupy.asarray(steps.view(np.int64))
        self._arrays["factor table"] = cupy.asarray(table.view(np.int64))
        pointers = [self._arrays[key].data.ptr for key in ("step table", "factor table")]
        self._arguments["steps"] = (*pointers, len(self.shape.steps))

    def prepare(self, inner: int) -> tuple[BatchKernel, Any]:
        """Return kernel and code for ``inner`` vectors at once, compiled on the first request."""
        if inner not in self._kernels:
            if not enabled((_FAMILY,)):
                raise LookupError("the family of kernels for any batch list is switched off")
            shape = replace(self.shape, inner=inner)
            kernel = _FAMILY.kernel(shape, GeneralVariant(), device_limits(self.device))
            self._kernels[inner] = kernel, load_kernel(kernel.program(), self.device)
        return self._kernels[inner]

    def run(
        self,
        x: DeviceArray,
        y: DeviceArray,
        outer: int,
        inner: int,
        alpha: complex,
        accumulate: bool,
    ) -> None:
        """Map x (outer, num_inputs, size, inner) to alpha A x, added to y or overwriting it."""
        check_device(self.device, x, y)
        shape = self.shape
        with device_errors():
            if y.size == 0:
                return
            if x.size == 0 or shape.products == 0 or shape.input_size == 0:
                if not accumulate:
                    y.data.memset_async(0, y.nbytes)
                return
            self.launch(x.data.ptr, y.data.ptr, outer, inner, alpha, accumulate)

    def reserve(self, outer: int, inner: int) -> None:
        """Compile the kernel for ``inner`` vectors at once, and allocate its workspace."""
        if 0 not in (outer, inner, self.shape.products, self.shape.input_size):
            _, workspace = self.prepared(outer, inner)
            self._workspaces.pointer(workspace)

    def prepared(self, outer: int, inner: int) -> tuple[Launch, int]:
        """Return the launch for vectors (outer, …, inner), and the bytes of its workspace."""
        prepared = self._launches.get((outer, inner))
        if prepared is None:
            kernel, code = self.prepare(inner)
            limits, tiling = device_limits(self.device), kernel.tile
            how = kernel.launch(limits)
            slabs = _slabs(tiling, outer, inner, how.blocks, limits)
            arguments = self._arguments.copy()
            arguments["outer"], arguments["inner"] = outer, inner
            arguments["staged"] = tiling.staged_elements
            arguments["buffer"], arguments["team"] = tiling.buffer_elements, tiling.team_elements
            grid = how.blocks, slabs
            launch = Launch(code, grid, how.threads, how.shared_bytes, arguments, 3, "accumulate")
            prepared = launch, slabs * how.workspace
            self._launches[outer, inner] = prepared
        return prepared

    def launch(
        self, x: int, y: int, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        """Do what `run` does, for non-empty vectors given by the addresses x and y."""
        launch, workspace = self.prepared(outer, inner)
        memory = self._workspaces.pointer(workspace)
        stream, shape = ready_stream(self.device), self.shape
        if not (accumulate or shape.owner):
            elements = outer * shape.num_outputs * shape.output_size * inner
            runtime.memsetAsync(y, 0, elements * shape.dtype.itemsize, stream)
        launch(stream, (x, y, memory), self._scalars(alpha, accumulate))


def _slabs(tiling: Tiling, outer: int, inner: int, blocks: int, limits: DeviceLimits) -> int:
    """Return how many groups of vectors run at the same time with ``blocks`` thread blocks each."""
    maximum = max(1, tiling.max_blocks(limits) // blocks)
    return min(outer * -(-inner // tiling.width), MAX_GRID_YZ, maximum)
