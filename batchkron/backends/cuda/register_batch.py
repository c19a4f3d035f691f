"""Batch lists of single vectors whose blocks fit in registers."""

from __future__ import annotations

from typing import Any

import numpy as np

from batchkron.backends.cuda.device import (
    DeviceArray,
    cupy,
    device_errors,
    device_limits,
    load_kernel,
    prefer_shared_memory,
)
from batchkron.backends.device_arguments import register_batch_arguments
from batchkron.backends.device_batches import (
    LARGEST_SHORT_ID,
    RegisterTiling,
    record_words,
    register_tiling,
)
from batchkron.backends.device_programs import register_batch_program
from batchkron.backends.device_tiling import Step
from batchkron.spec import Array

_MOST_BLOCKS_Y = 65535


class RegisterBatch:
    """A batch list, sorted by output, on the device: its own records, and the pools of others.

    Attributes
    ----------
    tiling : RegisterTiling
        It may be replaced between runs.
    """

    def __init__(
        self,
        tiling: RegisterTiling,
        dtype: np.dtype[Any],
        device: int,
        counts: tuple[int, int, int, int],
        arrays: dict[str, DeviceArray],
        pools: list[tuple[int, int]],
    ) -> None:
        """Take (systems, products, inputs, outputs), the arrays, address and stride of each pool.

        ``arrays`` are "list", "starts", "weights" and "unit_weights".
        """
        systems, products, num_inputs, num_outputs = counts
        self.tiling = tiling
        self._dtype = dtype
        self._device = device
        self._prepared: tuple[RegisterTiling, Any] | None = None
        self._num_outputs = num_outputs
        self._arrays = arrays
        self._arguments = np.zeros(1, register_batch_arguments(dtype, len(tiling.steps)))
        for key, array in arrays.items():
            self._arguments[key] = array.data.ptr
        self._arguments["pools"] = pools
        self._arguments["systems"] = systems
        self._arguments["num_inputs"], self._arguments["num_outputs"] = num_inputs, num_outputs
        if len(arrays["weights"]) > 1:
            self._arguments["weight_system"] = products

    def prepare(self) -> Any:
        """Return the kernel; it is compiled when first asked for."""
        if self._prepared is None or self._prepared[0] != self.tiling:
            kernel = load_kernel(register_batch_program(self._dtype, self.tiling), self._device)
            with device_errors():
                prefer_shared_memory(kernel, self.tiling.carveout)
            self._prepared = self.tiling, kernel
        return self._prepared[1]

    def takes(self, x: DeviceArray) -> bool:
        """Whether x begins where the kernel can copy whole words of 16 bytes."""
        return int(x.data.ptr) % 16 == 0

    def run(
        self, x: DeviceArray, y: DeviceArray, outer: int, alpha: complex, accumulate: bool
    ) -> None:
        """Map x (outer, num_inputs, size) to alpha A x, added to y or overwriting it."""
        kernel, tiling = self.prepare(), self.tiling
        arguments = self._arguments.copy()
        arguments["x"], arguments["y"], arguments["outer"] = x.data.ptr, y.data.ptr, outer
        arguments["accumulate"], arguments["alpha"] = accumulate, alpha
        grid = -(-self._num_outputs // tiling.outputs), min(outer, _MOST_BLOCKS_Y)
        kernel(grid, (tiling.block,), (arguments,), shared_mem=tiling.shared_bytes)


def tiling_of_batch(
    steps: tuple[Step, ...],
    dtype: np.dtype[Any],
    counts: tuple[int, int, int, int],
    ids: Array,
    device: int,
) -> RegisterTiling | None:
    """Return how a batch list runs in registers, or None where it does not.

    ``ids`` are those of the kernel's steps (products, steps), -1 for identities.
    """
    systems, products, num_inputs, num_outputs = counts
    if 0 in (products, num_outputs) or num_inputs > np.iinfo(np.int32).max:
        return None
    return register_tiling(
        steps,
        dtype.itemsize,
        systems * num_outputs,
        systems * products,
        bool(ids.max() <= LARGEST_SHORT_ID),
        bool(ids.min() < 0),
        device_limits(device),
    )


def list_records(ids: Array, inputs: Array, short_ids: bool) -> DeviceArray:
    """Return the records of a list: each an input and the ids of its matrices, all ones for -1."""
    products, steps = ids.shape
    records = np.zeros((products, record_words(steps, short_ids)), np.int32)
    records[:, 0] = inputs
    if short_ids:
        records[:, 1:].view(np.uint16)[:, :steps] = ids & 0xFFFF
    else:
        records[:, 1 : 1 + steps] = ids
    return cupy.asarray(records)
