"""Calls of kronecker_sparse_multiply, whose values may be others each time.

What a call with plain arrays launches is cached by the layouts of its arrays: the product, and
before it a kernel that copies the values to where the product reads them, unless they lie so
already. All other calls are validated first.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from batchkron.backends.cuda.kernel_launch import launch_of
from batchkron.backends.cuda.kron.fibres.passes import PRODUCTS
from batchkron.backends.cuda.kron_sparse.kernel import (
    SPARSE_SCALARS,
    WORD,
    SparseShape,
    Stored,
    sum_dtype,
)
from batchkron.backends.cuda.kron_sparse.plan import (
    PreparedProduct,
    check_pattern,
    common_alignment,
    prepared_product,
    tune,
)
from batchkron.backends.cuda.kron_sparse.stored import are_stored, store_kernel, stored_shape
from batchkron.backends.cuda.runtime.calls import KnownCalls, call_workspace, result_check
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    check_device,
    cupy,
    current_device,
    device_errors,
    device_limits,
    ready_stream,
    runtime,
)
from batchkron.backends.cuda.runtime.launch import Launch, batch_scalars
from batchkron.backends.cuda.tuning.tuning import wanted_tuning
from batchkron.spec.kron import Precision, check_precision
from batchkron.spec.kron_sparse import check_layout, pattern_of, split_vectors


def fast_kron_sparse_multiply(
    values: Any, x: Any, layout: Any, precision: Any, out: Any
) -> DeviceArray | None:
    """Return the product with values (a, b, c, d), in ``out`` unless that is None; or None.

    It applies to non-empty CuPy arrays of one supported dtype on the current device: x and ``out``
    C-contiguous, values with any strides that are not negative, and an ``out`` that overlaps no
    input. It returns None, and has done nothing, for all other calls, also for those that are
    refused.
    """
    array = cupy.ndarray
    if (
        type(values) is not array
        or type(x) is not array
        or type(layout) is not str
        or (precision is not None and type(precision) is not str)
        or wanted_tuning() is not None
    ):
        return None
    try:
        device, matrix, source, dtype = runtime.getDevice(), values.data, x.data, x.dtype
        if matrix.device_id != device or source.device_id != device:
            return None
        if values.dtype is not dtype and values.dtype != dtype:  # != takes longer
            return None
        vectors = x.shape, x.strides
        key = device, layout, precision, dtype, values.shape, values.strides, *vectors
        call = _calls.get(key)
        if call is None:
            if key in _calls:
                return None
            call = _calls[key] = _planned(values, x, layout, precision, device)
            if call is None:
                return None
        return call.run(matrix.ptr, source.ptr, out)
    except Exception:
        with device_errors():
            raise


class _Call:
    """A product of arrays with fixed layouts. It owns no device memory; threads may share it."""

    def __init__(
        self,
        values: DeviceArray,
        x: DeviceArray,
        vectors: tuple[int, int],
        shape: tuple[int, ...],
        precision: str | None,
        device: int,
    ) -> None:
        self.dtype, self.device, self.shape = x.dtype, device, shape
        itemsize = x.dtype.itemsize
        self._fits = result_check(shape, x.dtype, device)
        self._x_bytes, self._out_bytes = x.nbytes, itemsize * math.prod(shape)
        steps = zip(values.shape, values.strides, strict=True)
        self._value_bytes = itemsize + sum((size - 1) * step for size, step in steps)
        self._values = values.shape, values.strides, itemsize
        name = x.dtype.name
        products = PRODUCTS[precision] if name == "float32" else 0  # type: ignore[index]
        self._sizes = *check_pattern(values.shape), *vectors, name, products
        self._launches: dict[int, tuple[PreparedProduct, StoredValues]] = {}  # by the alignment
        self._plain = batch_scalars(sum_dtype(name))(1, False)

    def run(self, values: int, x: int, out: Any) -> DeviceArray | None:
        """Return the product, in ``out`` unless that is None; None where ``out`` does not fit."""
        if out is None:
            result = cupy.ndarray(self.shape, self.dtype)
            target = result.data.ptr
        elif not self._fits(out):
            return None
        else:
            result, target = out, out.data.ptr
            end = target + self._out_bytes
            if target < x + self._x_bytes and x < end:
                return None
            if target < values + self._value_bytes and values < end:
                return None
        self.launch(values, x, target)
        return result

    def launch(self, values: int, x: int, target: int) -> None:
        """Launch the product, after a copy of the values if kernels cannot read them."""
        odd = (x | target) % WORD
        product, stored = self._launches.get(odd) or self._prepare(odd)
        stream = ready_stream(self.device)
        copied = stored.needs(values)
        size = product.workspace + copied
        # one workspace: calls of a captured graph share it
        address, _memory = call_workspace(size) if size else (0, None)
        if copied:
            stored.copy()(stream, (values, address + product.workspace), b"")
            values = address + product.workspace
        product.start(stream, (x, target, values, address), self._plain)

    def _prepare(self, odd: int) -> tuple[PreparedProduct, StoredValues]:
        """Return and keep what is launched; ``odd``: bits of the addresses of x and the result."""
        shape = SparseShape(*self._sizes, common_alignment(odd))
        tune(shape, self.device, wanted_tuning())
        prepared = prepared_product(shape, self.device, True)
        stored = known_values(*self._values, self.dtype.name, prepared.stored, self.device)
        self._launches[odd] = prepared, stored
        return prepared, stored


class StoredValues:
    """Values of one layout as kernels read them: where they are, or copied by a launch."""

    def __init__(
        self,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        itemsize: int,
        name: str,
        stored: Stored,
        device: int,
    ) -> None:
        self._in_place = are_stored(shape, strides, itemsize, stored)
        self._bytes = math.prod(stored_shape(shape, itemsize, stored)) * itemsize
        self._kernel = store_kernel(shape, strides, itemsize, name, stored, device_limits(device))
        self._device = device
        self._copy: Launch | None = None  # compiled when it is needed

    def needs(self, values: int) -> int:
        """Return the bytes of a copy, 0 for values whose address lets them stay where they are."""
        return 0 if self._in_place and values % WORD == 0 else self._bytes

    def copy(self) -> Launch:
        """Return the launch that copies values to an address, in this order."""
        if self._copy is None:
            self._copy = launch_of(self._kernel, self._device, 2)
        return self._copy


_calls = KnownCalls()
known_values = lru_cache(maxsize=256)(StoredValues)


def _planned(
    values: DeviceArray, x: DeviceArray, layout: str, precision: str | None, device: int
) -> _Call | None:
    """Return the call with arrays like these, None if they are not plain or do not fit."""
    itemsize = x.dtype.itemsize
    if x.dtype.name not in SPARSE_SCALARS or not x.dtype.isnative or not x.flags.c_contiguous:
        return None
    if any(step < 0 or step % itemsize for step in values.strides):
        return None
    try:
        check_precision(precision)
        rows_and_columns = pattern_of(values).shape
        *vectors, shape = split_vectors(x.shape, rows_and_columns, check_layout(layout))
        if not (x.size and values.size):
            return None
        return _Call(values, x, (vectors[0], vectors[1]), shape, precision, device)
    except ValueError:
        return None


def multiply_kron_sparse(
    values: DeviceArray,
    x: DeviceArray,
    y: DeviceArray,
    outer: int,
    inner: int,
    precision: Precision | None = None,
) -> None:
    """Write the product with values (a, b, c, d) on the device to y."""
    device = current_device()
    check_device(device, values, x, y)
    check_pattern(values.shape)
    with device_errors():
        if not y.size:
            return
        if not x.size:
            y.data.memset_async(0, y.nbytes)
            return
        call = _Call(values, x, (outer, inner), y.shape, precision, device)
        call.launch(values.data.ptr, x.data.ptr, y.data.ptr)
