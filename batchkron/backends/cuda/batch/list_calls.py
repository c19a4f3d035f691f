"""Calls of batched_kron on arrays of a device that need no conversion: one launch each.

What such a call launches is cached by the shapes of all arrays but the number of products, since
such lists are made on the fly. All other calls go through plans.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

from batchkron.backends.cuda.batch.kernel import WORD, BatchShape
from batchkron.backends.cuda.batch.unsorted import UNSORTED, unsorted_program
from batchkron.backends.cuda.kernel import Kernel, first_kernel
from batchkron.backends.cuda.kernel_launch import launch_of
from batchkron.backends.cuda.runtime.calls import KnownCalls
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
from batchkron.backends.cuda.steps import plan_order, plan_steps
from batchkron.spec.batch import MAX_POOL_MATRICES
from batchkron.spec.kron import SUPPORTED_DTYPES

_NUMBERS = {np.dtype(np.int32): "int", np.dtype(np.int64): "long long"}
_NOTHING_REFUSED = 2**63 - 1


def fast_batched_kron(
    pools: Any, ids: Any, x: Any, inputs: Any, outputs: Any, y: Any, weights: Any
) -> bool:
    """Add the products of a batch list to y in one launch; return whether it did.

    It applies to non-empty, C-contiguous CuPy arrays of one supported dtype on the current device,
    to numbers of 32 or of 64 bits, and to addresses of whole 16-byte words; it does nothing and
    returns False for all other calls.

    Raises IndexError if an earlier call has left out a product with a number out of range.
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
        addresses = []
        for one in given:
            memory = one.data
            if memory.device_id != device:
                return False
            addresses.append(memory.ptr)
        products, modes = ids.shape
        length = (products,)
        if inputs.shape != length or outputs.shape != length:
            return False
        if weights is not None and weights.shape != length:
            return False
        key: list[Any] = [device, many, modes, products.bit_length()]
        for one in (x, y, *matrices):
            key += one.dtype, one.shape, one.strides
        for one in given[2:5] if weights is None else (*given[2:5], weights):
            key += one.dtype, one.strides
        known = tuple(key)
        _raise_refused(device)
        call = _calls.get(known, _UNKNOWN)
        if call is _UNKNOWN:
            with _calls.making:
                call = _calls[known] = _call_of(matrices, ids, x, inputs, outputs, y, weights)
        return isinstance(call, _Call) and call.run(addresses, products)
    except Exception:
        with device_errors():
            raise


class _Call:
    """The kernel for arrays of shapes but for the number of products; threads may share it."""

    def __init__(
        self,
        kernel: Kernel,
        number: np.dtype[Any],
        outer: int,
        pools: Any,
        weighted: bool,
        device: int,
    ) -> None:
        shape, dtype = kernel.work, kernel.work.dtype
        program = unsorted_program(dtype, kernel.variant, _NUMBERS[number], True, False)
        modes = [step.mode for step in shape.steps]
        self._pool_of_step = [0 if len(pools) == 1 else mode for mode in modes]
        self._weighted, self._device = weighted, device
        limits = [len(pools[place]) for place in self._pool_of_step]
        grid, code = (kernel.launch.blocks, min(outer, MAX_GRID_YZ)), load_kernel(program, device)
        values = {"columns": modes, "outer": outer, "limits": limits}
        self._launch = launch_of(kernel, device, 7 + len(modes), "products", grid, code, **values)
        self._one = np.ones(1, dtype).tobytes()
        self._refused = _refused(device).address
        vector, numbers = outer * dtype.itemsize, number.itemsize
        self._alignments = numbers, dtype.itemsize
        self._y_bytes = vector * shape.num_outputs * shape.output_size
        # Bytes of all other arrays: fixed ones, and those of each product.
        self._spans = [(vector * shape.num_inputs * shape.input_size, 0), (0, numbers * len(modes))]
        self._spans += [(0, numbers)] * 2 + [(pool.nbytes, 0) for pool in pools]
        self._spans += [(0, dtype.itemsize)] * weighted

    def run(self, addresses: list[int], products: int) -> bool:
        """Launch for arrays at these addresses: x, y, ids, inputs, outputs, pools, weights.

        Return False, and do nothing, unless x, y and pools begin with whole words, all else with
        whole elements, and y lies apart from all others.
        """
        x, y, ids, inputs, outputs, *pools = addresses
        end = y + self._y_bytes
        for begin, (fixed, each) in zip(
            (x, ids, inputs, outputs, *pools), self._spans, strict=True
        ):
            if y < begin + fixed + each * products and begin < end:
                return False
        weights = pools.pop() if self._weighted else 0
        words = x | y
        for pool in pools:
            words |= pool
        number, scalar = self._alignments
        if words % WORD or (ids | inputs | outputs) % number or weights % scalar:
            return False
        by_step = [pools[place] for place in self._pool_of_step]
        self._launch(
            ready_stream(self._device),
            (x, y, ids, inputs, outputs, weights, self._refused, *by_step),
            products.to_bytes(8, "little") + self._one,
        )
        return True


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
    kernel = first_kernel((UNSORTED,), shape, device_limits(device))
    if kernel is None:
        return None
    outer, weighted = math.prod(x.shape[:-2]), weights is not None
    return _Call(kernel, number, outer, pools, weighted, device)


class _Refused:
    """The least product that a kernel has left out, in the host's memory; kernels write there."""

    def __init__(self) -> None:
        self._memory = cupy.cuda.alloc_pinned_memory(8)
        self.address = int(self._memory.ptr)
        self.product = memoryview(self._memory).cast("B")[:8].cast("q")
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
    first = product[0]
    if first != _NOTHING_REFUSED:
        product[0] = _NOTHING_REFUSED
        raise IndexError(
            f"an earlier call of batched_kron on this device left out product {first}, and maybe "
            f"others, because a number of theirs was out of range: an id must be less than "
            f"the matrices of its pool, an input or output less than the blocks of x or y"
        )


_UNKNOWN = object()
_calls = KnownCalls()
