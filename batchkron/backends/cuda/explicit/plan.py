"""Explicit Kronecker products: the launches that write A_1 ⊗ … ⊗ A_d as a matrix.

The kernels write words of 16 bytes; a launch therefore depends on the address of the result modulo
16, but on no other address.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from batchkron.arrays import is_plain
from batchkron.backends.cuda.choose import needed_kernel
from batchkron.backends.cuda.explicit.kernel import (
    WORD_BYTES,
    DeviceMatrix,
    ProductShape,
    explicit_steps,
)
from batchkron.backends.cuda.kernel import Family
from batchkron.backends.cuda.kernel_family import forgotten
from batchkron.backends.cuda.kernel_launch import launch_of
from batchkron.backends.cuda.runtime.calls import KnownCalls, call_workspace
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    check_device,
    cupy,
    current_device,
    device_errors,
    device_limits,
    empty,
    matrix_strides,
    ready_stream,
    runtime,
)
from batchkron.backends.cuda.runtime.launch import Launch, LaunchSequence, LaunchStep, Place
from batchkron.spec.explicit import explicit_product
from batchkron.spec.kron import SUPPORTED_DTYPES, ready


def kron(factors: Sequence[Any], out: DeviceArray | None) -> DeviceArray:
    """Return the explicit product, ``out`` if given; RuntimeError where a capture would copy."""
    product = _fast_kron(factors, out)
    return _checked_kron(factors, out) if product is None else product


def _checked_kron(factors: Sequence[Any], out: DeviceArray | None) -> DeviceArray:
    """Return the product of any matrices, which are checked, and copied where need be."""
    matrices, shape, dtype = explicit_product(factors, out, cupy)
    _check_capture(matrices, out, dtype)
    target = empty(shape, dtype) if out is None or not is_plain(out) else out
    _write([ready(matrix, dtype) for matrix in matrices], target)
    if out is None or target is out:
        return target
    out[...] = target
    return out


def _fast_kron(factors: Sequence[Any], out: Any) -> DeviceArray | None:
    """Return the product of plain matrices, in ``out`` unless that is None; else return None.

    It applies to two or more non-empty, C-contiguous CuPy matrices of one supported dtype on the
    current device, and an ``out`` of the right layout that overlaps none of them. Plans are cached
    by shapes, strides and dtypes; devices and addresses are checked in every call.
    """
    array = cupy.ndarray
    try:
        device = runtime.getDevice()
        addresses, key = [], [device]
        for factor in factors:
            if type(factor) is not array:
                return None
            memory = factor.data
            if memory.device_id != device:
                return None
            addresses.append(memory.ptr)
            key += factor.shape, factor.strides, factor.dtype
        layouts = tuple(key)
        product = _products.get(layouts)
        if product is None:
            product = _learn(layouts, factors, device)
            if product is None:
                return None
        if out is None:
            out = array(product.shape, product.dtype)
        elif type(out) is not array or not product.fits(addresses, out):
            return None
        product.write(addresses, out.data.ptr)
    except Exception:
        with device_errors():
            raise
    return out


def _write(factors: Sequence[DeviceArray], out: DeviceArray) -> None:
    """Write the product of matrices of one dtype to ``out``, C-contiguous."""
    device = current_device()
    check_device(device, *factors, out)
    if out.size == 0:
        return
    with device_errors():
        if len(factors) == 1:
            out[...] = factors[0]
            return
        matrices = tuple(map(_layout, factors))
        chain = _chain(matrices, out.data.ptr % WORD_BYTES, out.dtype, device)
        chain.run([factor.data.ptr for factor in factors], out.data.ptr)


def _check_capture(
    factors: Sequence[DeviceArray], out: DeviceArray | None, dtype: np.dtype[Any]
) -> None:
    """Raise RuntimeError for arrays whose copies a captured graph would read after their end."""
    arrays = factors if out is None else [*factors, out]
    is_fast = all(array.dtype == dtype and is_plain(array) for array in arrays)
    if not is_fast and cupy.cuda.get_current_stream().is_capturing():
        raise RuntimeError(
            "a product is captured where nothing has to be copied: make the factors and out "
            "contiguous, of one dtype, before the capture"
        )


class _FastProduct:
    """The product of contiguous matrices of fixed shapes on one device."""

    def __init__(self, factors: Sequence[DeviceArray], device: int) -> None:
        shapes: list[tuple[int, int]] = [factor.shape for factor in factors]
        rows, columns = (math.prod(sizes) for sizes in zip(*shapes, strict=True))
        self.shape = rows, columns
        self.dtype = factors[0].dtype
        self._strides = columns * self.dtype.itemsize, self.dtype.itemsize
        self._bytes = rows * self._strides[0]
        self._factor_bytes = [factor.nbytes for factor in factors]
        self._matrices = tuple(
            DeviceMatrix(0, rows, columns, columns, 1) for rows, columns in shapes
        )
        self._device = device
        self._chains: dict[int, _Chain] = {}

    def fits(self, addresses: Sequence[int], out: DeviceArray) -> bool:
        """Whether ``out`` has the result's layout and device, and overlaps no matrix."""
        layout = out.shape, out.strides, out.dtype
        memory = out.data
        if layout != (self.shape, self._strides, self.dtype) or memory.device_id != self._device:
            return False
        begin = memory.ptr
        end = begin + self._bytes
        for address, size in zip(addresses, self._factor_bytes, strict=True):
            if address < end and begin < address + size:
                return False
        return True

    def write(self, addresses: Sequence[int], out: int) -> None:
        """Write the product of matrices at these addresses to the address ``out``."""
        place = out % WORD_BYTES
        chain = self._chains.get(place)
        if chain is None:
            chain = self._chains[place] = _chain(self._matrices, place, self.dtype, self._device)
        chain.run(addresses, out)


_products = KnownCalls()  # by what `_fast_kron` looks at


def _learn(
    layouts: tuple[Any, ...], factors: Sequence[DeviceArray], device: int
) -> _FastProduct | None:
    """Return and cache the product for these layouts, None if the fast path does not apply."""
    plain = len(factors) > 1 and all(
        factor.ndim == 2
        and factor.size > 0
        and factor.flags.c_contiguous
        and factor.dtype == factors[0].dtype
        for factor in factors
    )
    if not plain or factors[0].dtype not in SUPPORTED_DTYPES:
        return None
    product = _products[layouts] = _FastProduct(factors, device)
    return product


class _Chain:
    """The launches that write the product of two or more matrices; threads may share them."""

    def __init__(
        self, matrices: Sequence[DeviceMatrix], out: int, dtype: np.dtype[Any], device: int
    ) -> None:
        """Plan for these layouts; ``out`` is the address of the result modulo 16."""
        shapes = [(matrix.rows, matrix.columns) for matrix in matrices]
        steps, offsets = explicit_steps(shapes, dtype.itemsize)
        known = list(matrices)
        for left, right in steps:
            rows, columns = known[left].times(known[right])
            known.append(DeviceMatrix(0, rows, columns, columns, 1))
        found = _last_of_several(steps, known, out, dtype, device)
        if found is None:
            left, right = steps[-1]
            shape = ProductShape(known[left], known[right], out, dtype)
            found = _launch(shape, device), (left, right), ()
        launch, (left, right), inner = found
        count = len(matrices)  # a call passes their addresses, the result's, and the workspace's
        places = [*map(Place, range(count)), *(Place(count + 1, offset) for offset in offsets)]
        result = Place(count)
        read = {*inner, left, right}
        launches: list[LaunchStep] = []
        for place, (a, b) in reversed(list(enumerate(steps[:-1], count))):
            if place not in read:
                continue
            read |= {a, b}
            shape = ProductShape(known[a], known[b], 0, dtype)
            ends = places[a], places[b], places[place]
            launches.insert(0, LaunchStep.of(_launch(shape, device), ends))
        self._bytes = offsets[-1] if launches else 0
        addresses = places[left], places[right], result, *(places[k] for k in inner)
        self._sequence = LaunchSequence([*launches, LaunchStep.of(launch, addresses)], count + 2)
        self._device = device

    def run(self, addresses: Sequence[int], out: int) -> None:
        """Write the product of the matrices at these addresses to the address ``out``."""
        begin, _memory = call_workspace(self._bytes) if self._bytes else (0, None)
        self._sequence(ready_stream(self._device), (*addresses, out, begin), b"")


def _last_of_several(
    steps: Sequence[tuple[int, int]],
    known: Sequence[DeviceMatrix],
    out: int,
    dtype: np.dtype[Any],
    device: int,
) -> tuple[Launch, tuple[int, int], tuple[int, ...]] | None:
    """Return a launch that does the last step and those whose results it reads, if there is one.

    Its matrices follow, and its inner matrices, as indices into ``known``: factors, then results.
    """
    count = len(known) - len(steps)
    if max(steps[-1]) < count:
        return None
    inner: list[int | None] = []
    outer = []
    for place in steps[-1]:
        first, second = steps[place - count] if place >= count else (place, None)
        outer.append(first)
        inner.append(second)
    matrices = [None if place is None else known[place] for place in inner]
    shape = ProductShape(known[outer[0]], known[outer[1]], out, dtype, *matrices)
    try:
        launch = _launch(shape, device)
    except LookupError:
        return None
    # where one of both is no product, the kernel does not read its inner matrix
    return launch, (outer[0], outer[1]), tuple(0 if place is None else place for place in inner)


def write_product(
    a: DeviceArray,
    b: DeviceArray,
    out: DeviceArray,
    device: int,
    family: Family | None = None,
    variant: Any = None,
    a_inner: DeviceArray | None = None,
    b_inner: DeviceArray | None = None,
) -> None:
    """Write a ⊗ b to the non-empty ``out``, with the given variant of a family if there is one.

    With ``a_inner`` or ``b_inner``, a ⊗ a_inner or b ⊗ b_inner is in the place of a or b.

    Raises LookupError if no family takes these matrices.
    """
    inner = [a_inner, b_inner]
    layouts = [None if matrix is None else _layout(matrix) for matrix in inner]
    place = out.data.ptr % WORD_BYTES
    shape = ProductShape(_layout(a), _layout(b), place, out.dtype, *layouts)
    addresses = [a.data.ptr, b.data.ptr, out.data.ptr]
    if not shape.simple:
        addresses += [0 if matrix is None else matrix.data.ptr for matrix in inner]
    launch = _launch(shape, device, family, variant)
    launch(ready_stream(device), tuple(addresses), b"")


@forgotten
@lru_cache(maxsize=256)
def _chain(
    matrices: tuple[DeviceMatrix, ...], out: int, dtype: np.dtype[Any], device: int
) -> _Chain:
    """Return the launches for these layouts; ``out`` is the result's address modulo 16."""
    return _Chain(matrices, out, dtype, device)


@forgotten
@lru_cache(maxsize=1024)
def _launch(
    shape: ProductShape, device: int, family: Family | None = None, variant: Any = None
) -> Launch:
    """Return the launch that writes a ⊗ b; a call takes the addresses of a, b and the result."""
    limits = device_limits(device)
    kernel = None if family is None else family.kernel(shape, limits, variant)
    if kernel is None:
        kernel = needed_kernel("explicit", shape, limits)
    return launch_of(kernel, device, shape.addresses)


def _layout(matrix: DeviceArray) -> DeviceMatrix:
    """Return shape and strides of a matrix, with address 0."""
    rows, columns = matrix.shape
    return DeviceMatrix(0, rows, columns, *matrix_strides(matrix))
