"""Calls of gekmm and gemkm whose arrays need neither copy nor conversion.

What such a call launches is cached by the layouts of all arrays and the addresses of the factors:
functions are mostly called with the same factors again. All other calls go through `KronPlan`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from batchkron.backends.cuda.kernel_family import forget_by
from batchkron.backends.cuda.kron.plan import (
    PreparedMultiply,
    is_empty,
    kron_program,
    kron_scalars,
)
from batchkron.backends.cuda.runtime.call_results import result_check
from batchkron.backends.cuda.runtime.call_workspace import call_workspace
from batchkron.backends.cuda.runtime.device import DeviceArray, cupy, device_errors, runtime
from batchkron.backends.cuda.runtime.launch import BoundedCache
from batchkron.backends.cuda.tuning.tuning import wanted_tuning
from batchkron.spec.kron import SUPPORTED_DTYPES, KronSpec, Precision, kron_call

_MAX_CACHED = 256  # calls, and layouts of calls, that are cached; chosen by hand
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
        key = [device, left, precision, dtype, x.shape, x.strides]
        for factor in factors:
            if type(factor) is not array:
                return None
            if factor.dtype is not dtype and factor.dtype != dtype:  # != takes longer
                return None
            memory = factor.data
            if memory.device_id != device:
                return None
            key += memory.ptr, factor.shape, factor.strides
        known = tuple(key)
        call = _calls.get(known)
        if call is None:
            call = _learn(known, factors, x, left, precision, device)
            if call is None:
                return None
        return call.run(source.ptr, alpha, beta, y, out)
    except Exception:
        with device_errors():
            raise


class _Layout:
    """The kernels for plain arrays of fixed shapes on one device."""

    def __init__(self, spec: KronSpec, shape: tuple[int, ...], x: DeviceArray, device: int) -> None:
        self.dtype, self.device, self.shape = x.dtype, device, shape
        self.fits = result_check(shape, x.dtype, device)  # y and ``out``
        self.x_bytes, self.out_bytes = x.nbytes, spec.dtype.itemsize * math.prod(shape)
        self.program = kron_program(spec, device)
        self.plain_scalars = kron_scalars(spec.dtype, 1, 0)


class _Call:
    """A multiply by factors at fixed addresses. It owns no device memory; threads may share it."""

    def __init__(self, layout: _Layout, factors: Sequence[DeviceArray], left: bool) -> None:
        oriented = factors if left else [factor.T for factor in factors]
        self._layout = layout
        self._multiply = PreparedMultiply(layout.program, oriented, layout.dtype, layout.device)
        self._factors = [(one.data.ptr, one.data.ptr + one.nbytes) for one in factors]

    def run(self, x: int, alpha: float, beta: float, y: Any, out: Any) -> DeviceArray | None:
        """Return alpha A x + beta y, in ``out`` unless that is None; x is an address.

        It does nothing and returns None if y or ``out`` do not fit, or ``out`` overlaps an input.
        """
        layout, previous = self._layout, 0
        if beta == 0:
            if y is not None:
                return None
        elif not layout.fits(y):
            return None
        else:
            previous = y.data.ptr
        if out is not None and not (layout.fits(out) and self._is_apart(x, previous, y, out)):
            return None
        if alpha == 1 and beta == 0:
            scalars = layout.plain_scalars
        elif alpha - alpha == 0:  # finite
            scalars = kron_scalars(layout.dtype, float(alpha), float(beta))
        else:
            return None
        size = self._multiply.workspace
        begin, _memory = call_workspace(size) if size else (0, None)
        result = cupy.ndarray(layout.shape, layout.dtype) if out is None else out
        self._multiply.launch(begin, x, result.data.ptr, previous, scalars)
        return result

    def at(self, x: int, out: int) -> None:
        """Write A x to a contiguous result that overlaps no input; both are addresses."""
        size = self._multiply.workspace
        begin, _memory = call_workspace(size) if size else (0, None)
        self._multiply.launch(begin, x, out, 0, self._layout.plain_scalars)

    def _is_apart(self, x: int, previous: int, y: Any, out: DeviceArray) -> bool:
        """Whether ``out`` overlaps no input; it may be y itself."""
        size = self._layout.out_bytes
        begin = out.data.ptr
        end = begin + size
        if begin < x + self._layout.x_bytes and x < end:
            return False
        if previous and y is not out and begin < previous + size and previous < end:
            return False
        for first, last in self._factors:  # noqa: SIM110  all() takes longer
            if begin < last and first < end:
                return False
        return True


_calls: BoundedCache[tuple[Any, ...], _Call] = BoundedCache(_MAX_CACHED)
_layouts: BoundedCache[tuple[Any, ...], _Layout | None] = BoundedCache(_MAX_CACHED)
_addressed: BoundedCache[Hashable, _Call | None] = BoundedCache(_MAX_CACHED)
for _clear in (_calls.clear, _layouts.clear, _addressed.clear):
    forget_by(_clear)


def addressed_multiply(
    key: Hashable, operands: Callable[[], tuple[Sequence[DeviceArray], DeviceArray]], left: bool
) -> Callable[[int, int], None] | None:
    """Return a multiply of vectors at an address, for those who have no arrays.

    Parameters
    ----------
    key : hashable
        Tells apart all addresses and layouts of factors, layouts and dtypes of vectors, devices,
        and what ``left`` says.
    operands : callable
        Returns factors and vectors as arrays of CuPy; it is called for a new key only.
    left : bool
        As for `fast_kron_multiply`.

    Returns
    -------
    callable or None
        Takes the addresses of the vectors and of a contiguous result, which overlaps no operand,
        on the current device and CuPy's current stream. None if the fast path does not apply.
    """
    if wanted_tuning() is not None:
        return None
    try:
        call = _addressed[key]
    except KeyError:
        factors, x = operands()
        device = runtime.getDevice()
        places = [x.data, *(factor.data for factor in factors)]
        call = None
        if all(memory.device_id == device for memory in places):
            with device_errors():
                layout = _planned(factors, x, left, None, device)
                call = None if layout is None else _Call(layout, factors, left)
        _addressed[key] = call
    return None if call is None else call.at


def _learn(
    known: tuple[Any, ...],
    factors: Sequence[DeviceArray],
    x: DeviceArray,
    left: bool,
    precision: Precision | None,
    device: int,
) -> _Call | None:
    """Return and cache the call of this key, None if the fast path does not apply."""
    layouts = known[:6], tuple((factor.shape, factor.strides) for factor in factors)
    if layouts not in _layouts:
        _layouts[layouts] = _planned(factors, x, left, precision, device)
    layout = _layouts.get(layouts)
    if layout is None:
        return None
    call = _calls[known] = _Call(layout, factors, left)
    return call


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
    return None if is_empty(call.spec) else _Layout(call.spec, call.shape, x, device)
