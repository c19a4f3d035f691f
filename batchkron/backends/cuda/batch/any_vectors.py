"""Batch lists of any shape; results between a product's steps are kept in buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from batchkron.backends.cuda.batch.general import GENERAL
from batchkron.backends.cuda.batch.kernel import BatchShape
from batchkron.backends.cuda.kernel import Kernel, first_kernel, record
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
from batchkron.backends.cuda.runtime.hardware import MAX_GRID_YZ
from batchkron.backends.cuda.runtime.launch import BoundedCache, Launch, batch_scalars
from batchkron.backends.cuda.steps import STEP, has_fixed_steps, steps_argument


class ListBatch:
    """A batch list on the device, which can be applied to any number of vectors."""

    def __init__(self, shape: BatchShape, device: int, arrays: dict[str, Any]) -> None:
        """Take the device arrays "ids", "inputs", "outputs" and "starts"."""
        self.shape = shape
        self.device = device
        self._arrays = arrays
        self._workspaces = Workspaces()
        self._kernels: dict[int, tuple[Kernel, Any]] = {}
        self._launches: BoundedCache[tuple[int, int], tuple[Launch, int]] = BoundedCache()
        self._scalars = batch_scalars(shape.dtype)
        self._given: dict[str, Any] = {key: array.data.ptr for key, array in arrays.items()}

    def set_weights(self, weights: DeviceArray) -> None:
        """Set the weights, shape (systems or 1, products); before, all weights are 1."""
        self._launches.clear()
        self._given["weights"] = weights.data.ptr
        self._given["weight_system"] = self.shape.products if len(weights) > 1 else 0

    def set_factors(self, factors: Sequence[tuple[int, int, int, int, int]]) -> None:
        """Set each step's matrices: address and strides, as in `arguments.FACTOR`."""
        self._launches.clear()
        steps = self.shape.steps
        if has_fixed_steps(steps):
            self._given["steps"] = record(steps_argument(len(steps), True), factors=list(factors))
            return
        sizes = np.array([(s.L, s.C, s.K, s.R) for s in steps], STEP)
        table = np.array(list(factors), FACTOR)
        self._arrays["step table"] = cupy.asarray(sizes.view(np.int64))
        self._arrays["factor table"] = cupy.asarray(table.view(np.int64))
        pointers = [self._arrays[key].data.ptr for key in ("step table", "factor table")]
        self._given["steps"] = (*pointers, len(steps))

    def prepare(self, inner: int) -> tuple[Kernel, Any]:
        """Return kernel and code for ``inner`` vectors at once, compiled on the first request."""
        if inner not in self._kernels:
            shape = replace(self.shape, inner=inner)
            kernel = first_kernel((GENERAL,), shape, device_limits(self.device))
            if kernel is None:
                raise LookupError("the family of kernels for any batch list is switched off")
            self._kernels[inner] = kernel, load_kernel(kernel.program, self.device)
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
            how, tiling, arguments = kernel.launch, kernel.variant, kernel.arguments.copy()
            for key, value in self._given.items():
                arguments[key] = value
            arguments["outer"] = outer
            # groups of vectors that run at the same time, each with all thread blocks
            maximum = max(1, tiling.max_blocks(device_limits(self.device)) // how.blocks)
            slabs = min(outer * -(-inner // tiling.width), MAX_GRID_YZ, maximum)
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
