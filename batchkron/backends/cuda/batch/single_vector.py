"""Batch lists whose blocks fit in registers, applied to one vector at a time."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from batchkron.backends.cuda.batch.matrix_units import UnitTiling, unit_program, unit_tiling
from batchkron.backends.cuda.batch.registers import (
    MAX_SHORT_ID,
    RegisterTiling,
    record_words,
    register_batch_arguments,
    register_batch_program,
    register_tiling,
)
from batchkron.backends.cuda.batch.slices import SliceTiling, slice_program, slice_tiling
from batchkron.backends.cuda.batch.unit_slices import (
    UnitSliceTiling,
    unit_slice_program,
    unit_slice_tiling,
)
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    cupy,
    device_errors,
    device_limits,
    load_kernel,
    prefer_shared_memory,
    ready_stream,
)
from batchkron.backends.cuda.runtime.hardware import MAX_GRID_YZ
from batchkron.backends.cuda.runtime.launch import BoundedCache, Launch, batch_scalars
from batchkron.backends.cuda.runtime.program import Program
from batchkron.backends.cuda.steps import Step
from batchkron.spec.kron import Array

AnyTiling = RegisterTiling | SliceTiling | UnitTiling | UnitSliceTiling

WORD = 16  # bytes that the kernel copies at a time; the address of x must be a multiple
# Largest number of inputs, and of products of one output: the kernel counts them in 32 bits.
_MAX_COUNT = 2**31 - 16


class RegisterBatch:
    """A batch list on the device, sorted by output.

    It owns the list's records; pools and weights belong to the caller.
    """

    def __init__(
        self,
        tiling: AnyTiling,
        dtype: np.dtype[Any],
        device: int,
        counts: tuple[int, int, int, int],
        arrays: dict[str, DeviceArray],
    ) -> None:
        """Take (systems, products, inputs, outputs), and "list", "starts" and "unit_weights"."""
        systems, products, num_inputs, num_outputs = counts
        self._tiling = tiling
        self._dtype = dtype
        self._device = device
        self._kernel: Any = None
        self._launches: BoundedCache[int, Launch] = BoundedCache()
        self._scalars = batch_scalars(dtype)
        self._num_outputs, self._products = num_outputs, products
        self._arrays = arrays
        self._arguments = np.zeros(1, register_batch_arguments(dtype, len(tiling.steps)))
        for key, array in arrays.items():
            self._arguments[key] = array.data.ptr
        self._arguments["slots"] = tiling.slots if isinstance(tiling, SliceTiling) else 0
        self._arguments["systems"] = systems
        self._arguments["num_inputs"], self._arguments["num_outputs"] = num_inputs, num_outputs

    @property
    def tiling(self) -> AnyTiling:
        """The tiling: how the kernel's work is divided among threads."""
        return self._tiling

    def cut_as(self, tiling: RegisterTiling, kernel: Any = None) -> RegisterBatch:
        """Return the same list and values with another tiling, and its kernel if compiled."""
        other = copy(self)
        other._tiling, other._kernel, other._launches = tiling, kernel, BoundedCache()
        other._arguments = self._arguments.copy()
        return other

    def set_values(self, pools: list[tuple[int, int]], weights: DeviceArray) -> None:
        """Set address and system stride of each pool, and the weights (systems or 1, products)."""
        self._launches.clear()
        self._arguments["pools"] = pools
        self._arguments["weights"] = weights.data.ptr
        self._arguments["weight_system"] = self._products if len(weights) > 1 else 0

    def prepare(self) -> Any:
        """Return the kernel, compiled on the first request."""
        if self._kernel is None:
            kernel = load_kernel(self._program(), self._device)
            with device_errors():
                prefer_shared_memory(kernel, self._tiling.carveout)
            self._kernel = kernel
        return self._kernel

    def _program(self) -> Program:
        if isinstance(self._tiling, SliceTiling):
            return slice_program(self._dtype, self._tiling)
        if isinstance(self._tiling, UnitTiling):
            return unit_program(self._dtype, self._tiling)
        if isinstance(self._tiling, UnitSliceTiling):
            return unit_slice_program(self._dtype, self._tiling)
        return register_batch_program(self._dtype, self._tiling)

    def _launch(self, outer: int) -> Launch:
        launch = self._launches.get(outer)
        if launch is None:
            tiling, arguments = self._tiling, self._arguments.copy()
            arguments["outer"] = outer
            blocks = -(-self._num_outputs // tiling.outputs)
            if isinstance(tiling, RegisterTiling):
                blocks *= tiling.cluster
            grid = blocks, min(outer, MAX_GRID_YZ)
            launch = Launch(
                self.prepare(), grid, tiling.block, tiling.shared_bytes, arguments, 2, "accumulate"
            )
            self._launches[outer] = launch
        return launch

    def run(self, x: int, y: int, outer: int, alpha: complex, accumulate: bool) -> None:
        """Map x (outer, num_inputs, size) to alpha A x, added to y or overwriting it.

        x and y are addresses, x a multiple of `WORD`.
        """
        launch = self._launch(outer)
        launch(ready_stream(self._device), (x, y), self._scalars(alpha, accumulate))


def tiling_of_batch(
    steps: tuple[Step, ...],
    dtype: np.dtype[Any],
    counts: tuple[int, int, int, int],
    ids: Array,
    starts: Array,
    device: int,
) -> AnyTiling | None:
    """Return the tiling of a batch list in registers, None where it has to run otherwise.

    ``counts`` are systems, products, inputs and outputs. ``ids`` are the factor ids of the kernel's
    steps, (products, steps), -1 for identities; the products of output o are ``starts[o]`` to
    ``starts[o + 1] - 1``.
    """
    systems, products, num_inputs, num_outputs = counts
    if 0 in (products, num_outputs) or max(num_inputs, products) > _MAX_COUNT:
        return None
    kinds = bool(ids.max() <= MAX_SHORT_ID), bool(ids.min() < 0)
    numbers = systems * num_outputs, systems * products
    limits = device_limits(device)
    maximum = int(np.diff(starts).max())
    return (
        unit_tiling(steps, dtype, *numbers, *kinds, limits)
        or unit_slice_tiling(steps, dtype, numbers[0], *kinds, limits)
        or slice_tiling(steps, dtype.itemsize, *numbers, maximum, *kinds, limits)
        or register_tiling(steps, dtype.itemsize, *numbers, *kinds, limits)
    )


def list_records(ids: Array, inputs: Array, starts: Array, tiling: AnyTiling) -> DeviceArray:
    """Return the records of a list: each has an input block and the ids of its matrices.

    An identity's id has all bits set. A `SliceTiling` with slots has equally many records for each
    output; those without a product have the input -1.
    """
    products, steps = ids.shape
    records = np.zeros((products, record_words(steps, tiling.short_ids)), np.int32)
    records[:, 0] = inputs
    if tiling.short_ids:
        records[:, 1:].view(np.uint16)[:, :steps] = ids & 0xFFFF
    else:
        records[:, 1 : 1 + steps] = ids
    if isinstance(tiling, SliceTiling) and tiling.slots:
        padded = np.zeros((len(starts) - 1, tiling.slots, records.shape[1]), np.int32)
        padded[:, :, 0] = -1
        counts = np.diff(starts)
        outputs = np.repeat(np.arange(len(counts)), counts)
        padded[outputs, np.arange(products) - starts[outputs]] = records
        return cupy.asarray(padded)
    return cupy.asarray(records)
