"""A batch list on the device, bound to a kernel and to the arrays that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from batchkron.backends.cuda.batch.general import GENERAL
from batchkron.backends.cuda.batch.kernel import WORD, BatchShape
from batchkron.backends.cuda.kernel import Kernel, first_kernel, record
from batchkron.backends.cuda.kernel_launch import launch_of
from batchkron.backends.cuda.runtime.arguments import FACTOR
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    Workspaces,
    device_errors,
    device_limits,
    load_kernel,
    place,
    prefer_shared_memory,
    ready_stream,
    runtime,
)
from batchkron.backends.cuda.runtime.hardware import MAX_GRID_YZ
from batchkron.backends.cuda.runtime.launch import (
    BoundedCache,
    Launch,
    ScalarArguments,
    batch_scalars,
)
from batchkron.backends.cuda.steps import STEP, has_fixed_steps, steps_argument


class BoundList:
    """A batch list on the device for one kernel, and its launches by numbers of vectors.

    Without ``kernel`` it is the general one, which takes any number of vectors side by side.
    Otherwise it takes one at a time: the list as records, sorted by output, if the list is "owner";
    else the list's numbers in the user's order.
    """

    def __init__(
        self,
        shape: BatchShape,
        device: int,
        arrays: dict[str, DeviceArray],
        kernel: Kernel | None = None,
    ) -> None:
        """Take the arrays of the kernel's arguments, by name.

        They are "ids", "inputs", "outputs" and, of the general kernel, "starts"; or "list",
        "starts" and "unit_weights". Ids are by step, and -1 for an identity.
        """
        self.shape, self.kernel = shape, kernel
        self._device = device
        self._arrays = arrays  # kept alive
        self._values: dict[str, Any] = {name: one.data.ptr for name, one in arrays.items()}
        self._code: Any = None  # of the kernel, once loaded
        self._workspaces = Workspaces()
        self._launches: BoundedCache[tuple[int, int], tuple[Launch, int]] = BoundedCache()
        self._is_counted = kernel is not None and not shape.owner
        self._scalars = batch_scalars(shape.dtype)
        if self._is_counted:
            self._scalars = _counted_scalars(shape.products, shape.dtype)

    def with_kernel(self, kernel: Kernel, code: Any = None) -> BoundList:
        """Return the same list and values with another kernel, and its code if loaded."""
        other = copy(self)
        other.kernel, other._code, other._launches = kernel, code, BoundedCache()
        return other

    def bind(
        self, factors: Sequence[tuple[int, int, int, int, int]], weights: DeviceArray | None = None
    ) -> None:
        """Set each step's matrices, as in `arguments.FACTOR`, and weights, all 1 without them."""
        self._launches.clear()
        if self.kernel is None:
            self._values["steps"] = self._steps(factors)
        else:
            self._values |= _pools(factors, self.shape.owner)
        if weights is not None:
            self._values["weights"] = weights.data.ptr
            self._values["weight_system"] = self.shape.products if len(weights) > 1 else 0

    def _steps(self, factors: Sequence[tuple[int, int, int, int, int]]) -> Any:
        """Return the argument "steps" of the general kernel."""
        steps = self.shape.steps
        if has_fixed_steps(steps):
            return record(steps_argument(len(steps), True), factors=list(factors))
        sizes = np.array([(s.L, s.C, s.K, s.R) for s in steps], STEP)
        tables = place([one.view(np.int64) for one in (sizes, np.array(list(factors), FACTOR))])
        self._arrays["step table"], self._arrays["factor table"] = tables
        return (*(table.data.ptr for table in tables), len(steps))

    def _kernel(self, inner: int) -> Kernel:
        if self.kernel is not None:
            return self.kernel
        shape = replace(self.shape, inner=inner)
        kernel = first_kernel((GENERAL,), shape, device_limits(self._device))
        if kernel is None:
            raise LookupError("the family of kernels for any batch list is switched off")
        return kernel

    def _loaded(self, kernel: Kernel) -> Any:
        """Return the code of a kernel, compiled on the first request."""
        if self._code is not None:
            return self._code
        code = load_kernel(kernel.program, self._device)
        if self.kernel is not None:
            with device_errors():
                prefer_shared_memory(code, kernel.launch.carveout)
            self._code = code
        return code

    def reserve(self, outer: int, inner: int) -> None:
        """Compile the kernel for these numbers of vectors, and allocate its workspace."""
        if 0 not in (outer, inner, self.shape.products, self.shape.input_size):
            self._workspaces.pointer(self.prepared(outer, inner)[1])

    def prepared(self, outer: int, inner: int) -> tuple[Launch, int]:
        """Return the launch for vectors (outer, …, inner), and the bytes of its workspace."""
        prepared = self._launches.get((outer, inner))
        if prepared is None:
            kernel = self._kernel(inner)
            how, code = kernel.launch, self._loaded(kernel)
            slabs, addresses = min(outer, MAX_GRID_YZ), 2
            if self.kernel is None:
                # groups of vectors that run at the same time, each with all thread blocks
                tiling, limits = kernel.variant, device_limits(self._device)
                maximum = max(1, tiling.max_blocks(limits) // how.blocks)
                slabs, addresses = min(outer * -(-inner // tiling.width), MAX_GRID_YZ, maximum), 3
            scalars, grid = "products" if self._is_counted else "accumulate", (how.blocks, slabs)
            given = {"outer": outer, **self._values}
            launch = launch_of(kernel, self._device, addresses, scalars, grid, code, **given)
            prepared = self._launches[outer, inner] = launch, slabs * how.workspace
        return prepared

    def takes(self, x: int, y: int) -> bool:
        """Whether the kernel takes vectors at these addresses."""
        return self.kernel is None or (x if self.shape.owner else x | y) % WORD == 0

    def launch(
        self, x: int, y: int, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        """Map non-empty x (outer, num_inputs, size, inner) to alpha A x; both are addresses."""
        launch, workspace = self.prepared(outer, inner)
        general, shape = self.kernel is None, self.shape
        addresses = (x, y, self._workspaces.pointer(workspace)) if general else (x, y)
        stream = ready_stream(self._device)
        if not (accumulate or shape.owner):
            elements = outer * shape.num_outputs * shape.output_size * inner
            runtime.memsetAsync(y, 0, elements * shape.dtype.itemsize, stream)
        launch(stream, addresses, self._scalars(alpha, accumulate))


def _pools(factors: Sequence[tuple[int, ...]], owner: bool) -> dict[str, Any]:
    """Return the arguments that say where the matrices of each step are."""
    places = [factor[:2] for factor in factors]  # addresses, and strides of systems
    if owner:
        return {"pools": places}
    return dict(zip(("pools", "pool_systems"), zip(*places, strict=True), strict=True))


def _counted_scalars(products: int, dtype: np.dtype[Any]) -> ScalarArguments:
    """Return the scalars of kernels that are told how many products there are: it, and alpha."""
    count = np.int64(products).tobytes()
    return ScalarArguments(lambda alpha, accumulate: count + np.array([alpha], dtype).tobytes())
