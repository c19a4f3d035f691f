"""NumPy and CuPy arrays: which is which, checks and conversions, without importing CuPy."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from batchkron.errors import BackendUnavailableError, ContextLostError

# CUDA error codes (cudaError_t): the driver is older than CuPy's CUDA (35), no device (100).
_NO_DEVICE_STATUSES = {35, 100}
_OUT_OF_MEMORY_STATUS = 2  # CUDA error code cudaErrorMemoryAllocation
# Largest number of elements whose addresses are sorted to find overlaps: takes some milliseconds.
_MAX_COMPARED_ELEMENTS = 100_000
# CUDA error codes after which the driver refuses all further work of the process: illegal address
# or instruction, misaligned address, stack or assertion failure, time-out, failed launch,
# uncorrectable memory error.
_LOST_CONTEXT_STATUSES = {214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 720, 999}

_NUMBERS = (
    "expected an array of float32, float64, complex64 or complex128, or of integers or float16, "
    "which are converted"
)


def array_module(*operands: object) -> Any:
    """Return the module cupy if an operand is a CuPy array, else numpy."""
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        for operand in operands:  # half the time of any(), in each call on a device
            if isinstance(operand, cupy.ndarray):
                return cupy
    return np


def is_scalar(value: object) -> bool:
    """Whether a value is a number or an array of shape ()."""
    return bool(np.isscalar(value)) or (
        isinstance(value, array_module(value).ndarray) and getattr(value, "ndim", 1) == 0
    )


def is_masked(value: object) -> bool:
    """Whether a value is a masked array of NumPy."""
    masked = sys.modules.get("numpy.ma")
    return masked is not None and isinstance(value, masked.MaskedArray)


def refuse_masked(value: object, name: str) -> None:
    """Raise TypeError if a value is a masked array: its mask would be ignored."""
    if is_masked(value):
        raise TypeError(
            f"{name} is a masked array, whose mask would be ignored; fill it first, as with "
            f"{name}.filled(0), or pass {name}.data"
        )


def is_sparse(value: object) -> bool:
    """Whether a value is a sparse array or matrix of SciPy or CuPy."""
    cupyx = sys.modules.get("cupyx.scipy.sparse")
    return bool(issparse(value)) or (cupyx is not None and bool(cupyx.issparse(value)))


@contextmanager
def device_errors() -> Iterator[None]:
    """Turn CUDA errors inside a ``with`` block into batchkron's and Python's exceptions.

    Raises `BackendUnavailableError` if there is no usable device. `MemoryError` if the device has
    too little free memory. `ContextLostError` if an earlier kernel failed, so that the process can
    no longer use the device. All other exceptions pass unchanged.
    """
    try:
        yield
    except Exception as error:
        cupy = sys.modules.get("cupy")
        if cupy is None or not isinstance(
            error, (cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError)
        ):
            raise
        if error.status in _NO_DEVICE_STATUSES:
            raise BackendUnavailableError(f"there is no usable CUDA device: {error}") from error
        if error.status == _OUT_OF_MEMORY_STATUS:
            raise MemoryError(f"the CUDA device has too little free memory: {error}") from error
        if error.status in _LOST_CONTEXT_STATUSES:
            raise ContextLostError(
                f"the CUDA context is lost ({error}): an earlier kernel failed, no array of this "
                f"process on the device can be used any more. Start the process again; "
                f"CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer shows which call failed"
            ) from error
        raise


def as_array(value: ArrayLike, name: str, module: Any = np) -> NDArray[Any]:
    """Return ``value`` as an array of ``module``, refusing arrays that live elsewhere.

    Raises `TypeError` if the array is on another device than the other operands, or masked.
    """
    if type(value) is module.ndarray:
        return cast("NDArray[Any]", value)
    refuse_masked(value, name)
    if isinstance(value, module.ndarray):
        return cast("NDArray[Any]", value)  # the type as a string: building it takes time per call
    if module is not np and isinstance(value, np.ndarray):
        raise TypeError(
            f"{name} is an array on the CPU, but the other operands are on a CUDA device; copy it "
            f"with cupy.asarray first, or the operator with to('cpu')"
        )
    if hasattr(value, "__cuda_array_interface__"):
        raise TypeError(
            f"{name} is an array on a CUDA device, but the other operands are on the CPU; copy it "
            f"with .get() first, or the operator with to('cuda')"
            if module is np
            else f"{name} is a {type(value).__name__}; expected a CuPy array, as cupy.asarray makes"
        )
    if isinstance(value, (list, tuple)):
        _refuse_masked_entries(value, name)
    elif value is None or issparse(value) or hasattr(value, "matvec"):
        _refuse_entries(value, name)
    return _numbers(value, name, module)


def as_list(values: object, name: str) -> list[Any]:
    """Return the entries of a sequence of arrays.

    Raises `TypeError` if it is no sequence, but None, text, a mapping or a number.
    """
    if isinstance(values, Iterable) and not isinstance(values, (str, bytes, Mapping)):
        return list(values)
    what = "None" if values is None else f"a {type(values).__name__}"
    raise TypeError(f"{name} is {what}; expected a sequence of arrays")


def _numbers(value: object, name: str, module: Any) -> NDArray[Any]:
    """Return a list, a number, or an object that is an array to NumPy, as an array of numbers."""
    try:
        array: NDArray[Any] = module.asarray(value)
    except (ValueError, TypeError) as error:
        _refuse_entries(value, name)
        if "inhomogeneous" not in str(error):
            raise
        raise ValueError(f"{name} has rows of different lengths: {error}") from None
    if array.dtype.kind in "biufc":
        return array
    _refuse_entries(value, name)
    raise TypeError(f"{name} is a {type(value).__name__} of dtype {array.dtype}; {_NUMBERS}")


def _refuse_entries(value: object, name: str) -> None:
    """Raise TypeError if a value, or an entry of a list, cannot be an array of numbers."""
    if isinstance(value, (list, tuple)):
        for k, entry in enumerate(value):
            _refuse_entries(entry, f"{name}[{k}]")
    elif value is None:
        raise TypeError(f"{name} is None; {_NUMBERS}")
    elif issparse(value):
        raise TypeError(f"{name} is a sparse matrix; convert it with toarray() first")
    elif hasattr(value, "matvec"):
        raise TypeError(
            f"{name} is a {type(value).__name__}, a linear operator; expected an array. Pass its "
            "matrix: A.to_dense() of an operator A of batchkron, A @ numpy.eye(A.shape[1]) of any"
        )
    elif not isinstance(value, np.ndarray) and np.asarray(value).dtype.kind not in "biufc":
        raise TypeError(f"{name} is {value!r:.40}, a {type(value).__name__}; {_NUMBERS}")


def _refuse_masked_entries(values: Sequence[object], name: str) -> None:
    """Raise TypeError if a list, or one inside it, has a masked array among its entries."""
    for k, entry in enumerate(values):
        if isinstance(entry, np.ndarray):
            refuse_masked(entry, f"{name}[{k}]")
        elif isinstance(entry, (list, tuple)):
            _refuse_masked_entries(entry, f"{name}[{k}]")


def to_host(value: ArrayLike, name: str) -> NDArray[Any]:
    """Return ``value`` as a NumPy array; a CuPy array is copied to the host, synchronously.

    Raises `TypeError` if it is another library's array on a device, a sparse matrix of SciPy, or
    masked.
    """
    module = array_module(value)
    return as_array(value if module is np else module.asnumpy(value), name)


def on_host_layout(array: NDArray[Any]) -> NDArray[Any]:
    """Return a NumPy array with the same addresses and strides, to compare those with others.

    For a CuPy array its elements must not be accessed: the addresses are the device's.
    """
    if isinstance(array, np.ndarray):
        return array
    interface = {**array.__cuda_array_interface__, "version": 3}
    interface.pop("stream", None)
    return np.asarray(_Layout(interface))


class _Layout:
    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


def native_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a dtype in the machine's byte order: NumPy's own object, which is fast to compare."""
    return np.dtype(dtype.type)


def is_aligned(array: NDArray[Any]) -> bool:
    """Whether the elements are aligned to their size; on a device they always are."""
    return not isinstance(array, np.ndarray) or bool(array.flags.aligned)


def is_plain(array: NDArray[Any]) -> bool:
    """Whether the kernels may write to the array: C-contiguous and aligned."""
    return bool(array.flags.c_contiguous) and is_aligned(array)


def overlaps_itself(array: NDArray[Any]) -> bool:
    """Whether elements of an array share memory; also True if it would take long to find out."""
    if array.ndim == 1:
        return len(array) > 1 and abs(array.strides[0]) < array.itemsize
    axes = sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1)
    reach = array.itemsize  # bytes that the axes so far span
    for stride, count in axes:
        if stride < reach:
            break
        reach += stride * (count - 1)
    else:
        return False
    if array.size > _MAX_COMPARED_ELEMENTS:
        return True
    places = np.zeros(min(array.size, 1), np.int64)
    for stride, count in axes:
        places = (places[:, None] + stride * np.arange(count)).reshape(-1)
    return bool((np.diff(np.sort(places)) < array.itemsize).any())
