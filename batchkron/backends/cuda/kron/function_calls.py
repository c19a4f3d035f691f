"""Calls of gekmm and gemkm whose arrays need neither copy nor conversion.

What such a call launches is cached by the layouts of all arrays. All other calls go through
`KronPlan`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from batchkron.backends.cuda.kron.plan import PreparedMultiply, is_empty, kron_program, kron_scalars
from batchkron.backends.cuda.runtime.calls import KnownCalls, call_workspace, result_check
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    cupy,
    device_errors,
    matrix_strides,
    runtime,
)
from batchkron.backends.cuda.tuning.tuning import wanted_tuning
from batchkron.spec.kron import SUPPORTED_DTYPES, KronSpec, Precision, kron_call

_SEQUENCES = (list, tuple)
_NUMBERS = (int, float)


def fast_kron_multiply(
    factors: Any,
    x: Any,
    left: bool,
    alpha: Any,
    beta: Any,
    y: Any,
    out: Any,
    precision: Precision | None,
) -> DeviceArray | None:
    """Return the result of gekmm (``left``) or gemkm, in ``out`` unless that is None; or None.

    It applies to non-empty, C-contiguous CuPy arrays of one supported dtype on the current device,
    factors without leading axes (or transposes of such), real alpha and beta, and an ``out`` that
    overlaps no input. It returns None, and has done nothing, for all other calls, also for those
    that are refused.
    """
    array = cupy.ndarray
    if (
        type(x) is not array
        or type(factors) not in _SEQUENCES
        or type(alpha) not in _NUMBERS
        or type(beta) not in _NUMBERS
        or (precision is not None and type(precision) is not str)
        or wanted_tuning() is not None
    ):
        return None
    try:
        device, source, dtype = runtime.getDevice(), x.data, x.dtype
        if source.device_id != device:
            return None
        key, addresses = [device, left, precision, dtype, x.shape, x.strides], []
        for factor in factors:
            if type(factor) is not array:
                return None
            if factor.dtype is not dtype and factor.dtype != dtype:  # != takes longer
                return None
            memory = factor.data
            if memory.device_id != device:
                return None
            key += factor.shape, factor.strides
            addresses.append(memory.ptr)
        known = tuple(key)
        try:
            layout = _layouts[known]
        except KeyError:
            layout = _layouts[known] = _planned(factors, x, left, precision, device)
        return None if layout is None else layout.run(source.ptr, addresses, alpha, beta, y, out)
    except Exception:
        with device_errors():
            raise


class _Layout:
    """Calls with plain arrays of fixed shapes and strides on one device; threads may share it."""

    def __init__(
        self,
        spec: KronSpec,
        shape: tuple[int, ...],
        factors: Sequence[DeviceArray],
        x: DeviceArray,
        device: int,
    ) -> None:
        self._dtype, self._shape = x.dtype, shape
        self._fits = result_check(shape, x.dtype, device)  # y and ``out``
        self._x_bytes, self._out_bytes = x.nbytes, spec.dtype.itemsize * math.prod(shape)
        self._factor_bytes = [factor.nbytes for factor in factors]
        strides = [matrix_strides(factor) for factor in factors]
        self.multiply = PreparedMultiply(kron_program(spec, device), strides, device)
        self._plain_scalars = kron_scalars(spec.dtype, 1, 0)

    def run(
        self, x: int, factors: Sequence[int], alpha: float, beta: float, y: Any, out: Any
    ) -> DeviceArray | None:
        """Return alpha A x + beta y, in ``out`` unless that is None; x and factors are addresses.

        It does nothing and returns None if y or ``out`` do not fit, or ``out`` overlaps an input.
        """
        previous = 0
        if beta == 0:
            if y is not None:
                return None
        elif not self._fits(y):
            return None
        else:
            previous = y.data.ptr
        if out is not None and not (
            self._fits(out) and self._is_apart(x, factors, previous, y, out)
        ):
            return None
        if alpha == 1 and beta == 0:
            scalars = self._plain_scalars
        elif alpha - alpha == 0:  # finite
            scalars = kron_scalars(self._dtype, float(alpha), float(beta))
        else:
            return None
        size = self.multiply.workspace
        begin, _memory = call_workspace(size) if size else (0, None)
        result = cupy.ndarray(self._shape, self._dtype) if out is None else out
        self.multiply.launch((x, result.data.ptr, previous, begin, *factors), scalars)
        return result

    def _is_apart(
        self, x: int, factors: Sequence[int], previous: int, y: Any, out: DeviceArray
    ) -> bool:
        """Whether ``out`` overlaps no input; it may be y itself."""
        size = self._out_bytes
        begin = out.data.ptr
        end = begin + size
        if begin < x + self._x_bytes and x < end:
            return False
        if previous and y is not out and begin < previous + size and previous < end:
            return False
        for first, length in zip(factors, self._factor_bytes, strict=True):
            if begin < first + length and first < end:
                return False
        return True


_layouts = KnownCalls()
_addressed: dict[Hashable, PreparedMultiply | None] = KnownCalls()


def addressed_multiply(
    key: Hashable,
    operands: Callable[[], tuple[Sequence[DeviceArray], DeviceArray]],
    left: bool,
    device: int,
) -> PreparedMultiply | None:
    """Return a multiply for those who have addresses, and no arrays.

    ``key``: tells apart all layouts and dtypes of factors and vectors, devices, and what ``left``
    says; ``operands``: returns factors and vectors as arrays of CuPy; it is called for a new key
    only; ``left``: as for `fast_kron_multiply`; ``device``: where the operands are. It writes
    contiguous results that overlap no operand. None if the fast path does not apply.
    """
    if wanted_tuning() is not None:
        return None
    try:
        return _addressed[key]
    except KeyError:
        with device_errors(), cupy.cuda.Device(device):
            factors, x = operands()
            layout = _planned(factors, x, left, None, device)
        found = _addressed[key] = None if layout is None else layout.multiply
        return found


def _planned(
    factors: Sequence[DeviceArray],
    x: DeviceArray,
    left: bool,
    precision: Precision | None,
    device: int,
) -> _Layout | None:
    """Return the kernels for arrays like these, None if they are not plain or do not fit."""
    plain = x.flags.c_contiguous and all(
        factor.ndim == 2 and (factor.flags.c_contiguous or factor.flags.f_contiguous)
        for factor in factors
    )
    if not plain or x.dtype not in SUPPORTED_DTYPES:
        return None
    try:
        call = kron_call(
            factors,
            x,
            left=left,
            alpha=1,
            beta=0,
            y=None,
            transpose=False,
            conj=False,
            precision=precision,
        )
    except ValueError:
        return None
    if is_empty(call.spec):
        return None
    oriented = factors if left else [factor.T for factor in factors]
    return _Layout(call.spec, call.shape, oriented, x, device)
