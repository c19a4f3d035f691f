"""Batch lists of any shape, each product between two buffers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchkron.backends.cuda.device import (
    DeviceArray,
    Workspaces,
    check_device,
    cupy,
    device_errors,
    device_limits,
    load_kernel,
)
from batchkron.backends.device_arguments import FACTOR, STEP, batch_arguments
from batchkron.backends.device_programs import batch_program, has_fixed_steps
from batchkron.backends.device_tiling import Step, Tiling, batch_tiling

_MOST_BLOCKS_Y = 65535


@dataclass(frozen=True, slots=True)
class BatchShape:
    """The sizes of a batch list, and how its results are added."""

    steps: tuple[Step, ...]
    dtype: np.dtype[Any]
    products: int
    systems: int
    num_inputs: int
    num_outputs: int
    input_size: int
    output_size: int
    owner: bool


class ListBatch:
    """A batch list on the device, ready to run on any vectors."""

    def __init__(self, shape: BatchShape, device: int, arrays: dict[str, Any]) -> None:
        """Take the device arrays "ids", "inputs", "outputs", "starts" and maybe "weights"."""
        self.shape = shape
        self.device = device
        self._arrays = arrays
        self._workspaces = Workspaces()
        self._tilings: dict[int, tuple[Tiling, Any]] = {}
        fixed = has_fixed_steps(shape.steps)
        self._arguments = np.zeros(1, batch_arguments(shape.dtype, len(shape.steps), fixed))
        for key, array in arrays.items():
            self._arguments[key] = array.data.ptr
        for key in ("products", "systems", "num_inputs", "num_outputs"):
            self._arguments[key] = getattr(shape, key)
        self._arguments["input_size"] = shape.input_size
        self._arguments["output_size"] = shape.output_size
        if "weights" in arrays and len(arrays["weights"]) > 1:
            self._arguments["weight_system"] = shape.products

    def set_factors(self, factors: Sequence[tuple[int, int, int, int, int]]) -> None:
        """Say where the matrices of each step are."""
        if has_fixed_steps(self.shape.steps):
            self._arguments["steps"]["factors"] = list(factors)
            return
        steps = np.array([(s.L, s.C, s.K, s.R) for s in self.shape.steps], STEP)
        table = np.array(list(factors), FACTOR)
        self._arrays["step table"] = cupy.asarray(steps.view(np.int64))
        self._arrays["factor table"] = cupy.asarray(table.view(np.int64))
        pointers = [self._arrays[key].data.ptr for key in ("step table", "factor table")]
        self._arguments["steps"] = (*pointers, len(self.shape.steps))

    def prepare(self, inner: int) -> tuple[Tiling, Any]:
        """Return the tiling and kernel for ``inner`` vectors at once; compiled when first asked."""
        if inner not in self._tilings:
            shape, limits = self.shape, device_limits(self.device)
            buffers = 3 if shape.owner else 2
            tiling = batch_tiling(shape.steps, inner, buffers, shape.dtype.itemsize, limits)
            program = batch_program(shape.dtype, tiling, shape.owner)
            self._tilings[inner] = tiling, load_kernel(program, self.device)
        return self._tilings[inner]

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
                    _zero(y)
                return
            self._launch(x, y, outer, inner, alpha, accumulate)

    def reserve(self, outer: int, inner: int) -> None:
        """Compile the kernel for ``inner`` vectors at once, and allocate its workspace."""
        if 0 not in (outer, inner, self.shape.products, self.shape.input_size):
            tiling, _ = self.prepare(inner)
            grid = self._grid(tiling, outer, inner)
            self._workspaces.pointer(math.prod(grid) * tiling.workspace_bytes)

    def _grid(self, tiling: Tiling, outer: int, inner: int) -> tuple[int, int]:
        """Return how many thread blocks work on units of the list, and on slabs of vectors."""
        units = self.shape.num_outputs if self.shape.owner else self.shape.products
        most = tiling.most_blocks(device_limits(self.device))
        blocks = min(-(-units // tiling.teams), most)
        slabs = min(outer * -(-inner // tiling.width), _MOST_BLOCKS_Y, max(1, most // blocks))
        return blocks, slabs

    def _launch(
        self,
        x: DeviceArray,
        y: DeviceArray,
        outer: int,
        inner: int,
        alpha: complex,
        accumulate: bool,
    ) -> None:
        shape = self.shape
        tiling, kernel = self.prepare(inner)
        grid = self._grid(tiling, outer, inner)
        memory = self._workspaces.pointer(math.prod(grid) * tiling.workspace_bytes)
        if not (accumulate or shape.owner):
            _zero(y)
        arguments = self._arguments.copy()
        arguments["x"], arguments["y"], arguments["workspace"] = x.data.ptr, y.data.ptr, memory
        arguments["outer"], arguments["inner"] = outer, inner
        arguments["staged"], arguments["buffer"] = tiling.staged_elements, tiling.buffer_elements
        arguments["team"] = tiling.team_elements
        arguments["accumulate"], arguments["alpha"] = accumulate, alpha
        kernel(grid, (tiling.block,), (arguments,), shared_mem=tiling.shared_bytes)


def _zero(y: DeviceArray) -> None:
    y.data.memset_async(0, y.nbytes)
