"""Calls of batched_kron on arrays of a device that need no conversion: one launch each.

What such a call launches is cached by the shapes of all arrays but the number of products, since
such lists are made on the fly. All other calls go through plans.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

from batchkron.backends.cuda.batch.kernel import BatchShape
from batchkron.backends.cuda.batch.records import WORD, unsorted_arguments
from batchkron.backends.cuda.batch.unsorted import (
    Unsorted,
    unsorted_launch,
    unsorted_program,
)
from batchkron.backends.cuda.kernel_family import enabled, forget_by
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    cupy,
    device_errors,
    device_limits,
    load_kernel,
    ready_stream,
    runtime,
)
from batchkron.backends.cuda.runtime.hardware import MAX_GRID_YZ
from batchkron.backends.cuda.runtime.launch import BoundedCache, Launch
from batchkron.backends.cuda.steps import plan_order, plan_steps
from batchkron.spec.batch import MAX_POOL_MATRICES
from batchkron.spec.kron import SUPPORTED_DTYPES

_MAX_CACHED = 256  # layouts of calls that are cached; chosen by hand
_NUMBERS = {np.dtype(np.int32): "int", np.dtype(np.int64): "long long"}
_NOTHING_REFUSED = 2**63 - 1
_FAMILY = Unsorted()


def fast_batched_kron(
    pools: Any, ids: Any, x: Any, inputs: Any, outputs: Any, y: Any, weights: Any
) -> bool:
    """Add the products of a batch list to y in one launch; return whether it did.

    It applies to non-empty, C-contiguous CuPy arrays of one supported dtype on the current device,
    to numbers of 32 or of 64 bits, and to addresses of whole 16-byte words; it does nothing and
    returns False for all other calls.

    Raises
    ------
    IndexError
        If an earlier call has left out a product with a number out of range.
    """
    array = cupy.ndarray
    many = type(pools) in (list, tuple)
    matrices = tuple(pools) if many else (pools,)
    given = (x, y, ids, inputs, outputs, *matrices)
    if weights is not None:
        given = (*given, weights)
    for one in given:
        if type(one) is not array:
            return False
    if ids.ndim != 2 or (many and len(matrices) != ids.shape[1]):
        return False
    try:
        device = runtime.getDevice()
        key: list[Any] = [device, many, weights is None, len(ids).bit_length()]
        for one in given:
            if one.data.device_id != device:
                return False
        for one in (x, y, *matrices):
            key += one.dtype, one.shape, one.strides
        for one in given[2:5] if weights is None else (*given[2:5], weights):
            key += one.dtype, one.shape[1:], one.strides
        known = tuple(key)
        _raise_refused(device)
        call = _calls.get(known, _UNKNOWN)
        if call is _UNKNOWN:
            with _learning:
                call = _calls[known] = _call_of(matrices, ids, x, inputs, outputs, y, weights)
        if not isinstance(call, _Call) or not call.takes(
            matrices, ids, x, inputs, outputs, y, weights
        ):
            return False
        call.run(matrices, ids, x, inputs, outputs, y, weights)
        return True
    except Exception:
        with device_errors():
            raise


class _Call:
    """The kernel for arrays of fixed shapes. Threads may share it."""

    def __init__(self, shape: BatchShape, number: str, outer: int, device: int) -> None:
        limits, dtype = device_limits(device), shape.dtype
        kernel = _FAMILY.fastest(shape, limits)
        assert kernel is not None
        program = unsorted_program(dtype, kernel.tile, number, True, False)
        how = unsorted_launch(kernel.tile, shape.products, limits)
        self._modes = [step.mode for step in shape.steps]
        self._device = device
        arguments = np.zeros(1, unsorted_arguments(dtype, len(shape.steps)))
        arguments["columns"], arguments["outer"], arguments["systems"] = self._modes, outer, 1
        arguments["num_inputs"], arguments["num_outputs"] = shape.num_inputs, shape.num_outputs
        self._one = np.ones(1, dtype).tobytes()
        self._new = (load_kernel(program, device), how, arguments, min(outer, MAX_GRID_YZ))
        self._launches: dict[tuple[int, ...], Launch] = {}

    def takes(
        self,
        pools: Any,
        ids: DeviceArray,
        x: DeviceArray,
        inputs: DeviceArray,
        outputs: DeviceArray,
        y: DeviceArray,
        weights: DeviceArray | None,
    ) -> bool:
        """Whether lengths and addresses fit: whole words, and y apart from all other arrays."""
        products = len(ids)
        if len(inputs) != products or len(outputs) != products:
            return False
        begin = y.data.ptr
        end = begin + y.nbytes
        if begin % WORD or x.data.ptr % WORD:
            return False
        others = (x, ids, inputs, outputs, *pools)
        if weights is not None:
            others = (*others, weights)
        for one in others:
            address = one.data.ptr
            if begin < address + one.nbytes and address < end:
                return False
        for pool in pools:
            if pool.data.ptr % WORD:
                return False
        return weights is None or len(weights) == products

    def run(
        self,
        pools: Any,
        ids: DeviceArray,
        x: DeviceArray,
        inputs: DeviceArray,
        outputs: DeviceArray,
        y: DeviceArray,
        weights: DeviceArray | None,
    ) -> None:
        """Launch; `takes` has said that it may."""
        modes = self._modes
        by_step = [pools[0 if len(pools) == 1 else mode] for mode in modes]
        counts = tuple([len(pool) for pool in by_step])
        launch = self._launches.get(counts)
        if launch is None:
            code, how, arguments, down = self._new
            arguments = arguments.copy()
            arguments["limits"] = counts
            grid, addresses = (how.blocks, down), 7 + len(modes)
            threads, memory = how.threads, how.shared_bytes
            launch = Launch(code, grid, threads, memory, arguments, addresses, "products")
            self._launches[counts] = launch
        scale = 0 if weights is None else weights.data.ptr
        launch(
            ready_stream(self._device),
            (
                x.data.ptr,
                y.data.ptr,
                ids.data.ptr,
                inputs.data.ptr,
                outputs.data.ptr,
                scale,
                _refused(self._device).address,
                *[pool.data.ptr for pool in by_step],
            ),
            len(ids).to_bytes(8, "little") + self._one,
        )


def _call_of(
    pools: Any,
    ids: DeviceArray,
    x: DeviceArray,
    inputs: DeviceArray,
    outputs: DeviceArray,
    y: DeviceArray,
    weights: DeviceArray | None,
) -> _Call | None:
    """Return the kernel for arrays of these shapes, None if they are not plain or have none."""
    dtype, number = x.dtype, ids.dtype
    values = (x, y, *pools) if weights is None else (x, y, weights, *pools)
    if dtype not in SUPPORTED_DTYPES or any(one.dtype != dtype for one in values):
        return None
    if number not in _NUMBERS or not number == inputs.dtype == outputs.dtype:
        return None
    everything = (*values, ids, inputs, outputs)
    if any(one.size == 0 or not one.flags.c_contiguous for one in everything):
        return None
    if inputs.ndim != 1 or outputs.ndim != 1 or any(pool.ndim != 3 for pool in pools):
        return None
    if weights is not None and weights.ndim != 1:
        return None
    if any(len(pool) > MAX_POOL_MATRICES for pool in pools):
        return None
    modes = ids.shape[1]
    shapes = [pools[k if len(pools) > 1 else 0].shape[1:] for k in range(modes)]
    rows, columns = ([size[axis] for size in shapes] for axis in (0, 1))
    if x.ndim < 2 or x.shape[:-2] != y.shape[:-2]:
        return None
    if x.shape[-1] != math.prod(columns) or y.shape[-1] != math.prod(rows):
        return None
    shape = BatchShape(
        steps=plan_steps(columns, rows, plan_order(columns, rows), dtype),
        dtype=dtype,
        products=1 << len(ids).bit_length(),
        systems=1,
        num_inputs=x.shape[-2],
        num_outputs=y.shape[-2],
        input_size=x.shape[-1],
        output_size=y.shape[-1],
        owner=False,
    )
    device = x.data.device_id
    if not enabled((_FAMILY,)) or not _FAMILY.accepts(shape, device_limits(device)):
        return None
    return _Call(shape, _NUMBERS[number], math.prod(x.shape[:-2]), device)


class _Refused:
    """The least product that a kernel has left out, in the host's memory; kernels write there."""

    def __init__(self) -> None:
        self._memory = cupy.cuda.alloc_pinned_memory(8)
        self.address = int(self._memory.ptr)
        self.product = np.frombuffer(self._memory, np.int64, 1)
        self.product[0] = _NOTHING_REFUSED


_by_device: dict[int, _Refused] = {}
_making = threading.Lock()


def _refused(device: int) -> _Refused:
    found = _by_device.get(device)
    if found is None:
        with _making:  # one object only: kernels keep its address
            found = _by_device.setdefault(device, _by_device.get(device) or _Refused())
    return found


def _raise_refused(device: int) -> None:
    """Raise IndexError if kernels have left out a product since this was last asked."""
    product = _refused(device).product
    if product[0] != _NOTHING_REFUSED:
        first = int(product[0])
        product[0] = _NOTHING_REFUSED
        raise IndexError(
            f"an earlier call of batched_kron on this device left out product {first}, and maybe "
            f"others, because a number of theirs was out of range: an id must be less than "
            f"the matrices of its pool, an input or output less than the blocks of x or y"
        )


_UNKNOWN = object()
_calls: BoundedCache[tuple[Any, ...], object] = BoundedCache(_MAX_CACHED)
forget_by(_calls.clear)
_learning = threading.Lock()
