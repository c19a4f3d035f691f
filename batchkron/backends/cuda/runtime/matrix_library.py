"""Products of matrices by cuBLAS, the library that CuPy brings along."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cpu.native import DeviceMultiply, MatrixLibrary
from batchkron.backends.cuda.runtime.arguments import struct

WORKSPACE = 32 << 20
"""Bytes that a product may use; with fewer, cuBLAS takes slower kernels on devices of sm_90."""

WORKSPACE_ALIGNMENT = 256
"""Bytes that its address must be a multiple of; else `cublasSetWorkspace` refuses it."""

_FUNCTIONS = (
    "cublasCreate_v2",
    "cublasSetMathMode",
    "cublasSetStream_v2",
    "cublasSetWorkspace_v2",
    "cublasGemmStridedBatchedEx",
)
# cudaDataType, and the cublasComputeType whose sums are in float32, or in float64
_TYPES = {"float16": (2, 68), "bfloat16": (14, 68), "float32": (0, 68), "float64": (1, 70)}

_RELAXED = 2  # CUstreamCaptureMode

DTYPES = tuple(_TYPES)
"""Names of the dtypes of elements; those of 16 bits are summed in float32."""


@dataclass(frozen=True, slots=True)
class MatrixProducts:
    """Products C = op(A) op(B) of matrices (m, k) and (k, n) in column-major order."""

    m: int
    n: int
    k: int
    # count, batches: products of a call, and how many calls
    count: int
    batches: int
    steps: tuple[int, int, int]  # elements from one column of A, B and C to the next
    strides: tuple[int, int, int]  # elements from one matrix A, B and C of a call to the next
    jumps: tuple[int, int, int]  # elements from the first matrices of one call to those of the next
    transposed: tuple[bool, bool]  # whether A and B are stored transposed
    # whether A is the operator's values and B the vectors x, or the other way round
    values_first: bool


def has_matrix_library() -> bool:
    """Whether cuBLAS and all functions that are needed were found."""
    return bool(_functions())


@cache
def _functions() -> tuple[int, ...]:
    try:
        from cupy_backends.cuda.libs import cublas

        library = ctypes.CDLL(cublas.__file__)  # finds names of what it is linked with, too
        found = [ctypes.cast(getattr(library, name), ctypes.c_void_p) for name in _FUNCTIONS]
    except (ImportError, OSError, AttributeError):
        return ()
    return tuple(one.value or 0 for one in found)


def _refuse(status: int) -> None:
    from cupy_backends.cuda.libs import cublas

    raise cublas.CUBLASError(status)


@cache
def _library(device: int) -> MatrixLibrary:
    """Return the handle of a device, which is the current one."""
    with _allocating_in_captures():
        return MatrixLibrary(_functions(), _refuse)


@contextmanager
def _allocating_in_captures() -> Iterator[None]:
    """Let this thread allocate memory while a graph is captured, which does not contain that."""
    try:
        exchange = ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode
    except OSError:  # without a driver nothing is captured
        yield
        return
    mode = ctypes.c_int(_RELAXED)
    exchange(ctypes.byref(mode))  # which gives the mode before
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


class LibraryMultiply(DeviceMultiply):
    """Products of matrices with vectors on one device, the current one.

    A call passes the stream, the addresses of x, y, the values and `WORKSPACE` bytes, which are
    aligned to `WORKSPACE_ALIGNMENT`, and the bytes of `batch_scalars`. Threads may share it.
    """

    def __init__(self, products: MatrixProducts, dtype: str, itemsize: int, device: int) -> None:
        """Take products of elements of a dtype in `DTYPES`."""
        scalar = np.dtype("float64" if dtype == "float64" else "float32")
        arguments = np.zeros(1, _arguments(scalar))
        arguments["alpha"] = 1
        super().__init__(
            library=_library(device),
            sizes=(products.m, products.n, products.k, products.count, products.batches),
            steps=products.steps,
            strides=products.strides,
            jumps=tuple(itemsize * jump for jump in products.jumps),
            transposed=products.transposed,
            values_first=products.values_first,
            types=_TYPES[dtype],
            is_double=scalar.itemsize == 8,
            workspace=WORKSPACE,
            arguments=arguments.tobytes(),
        )


@cache
def _arguments(scalar: np.dtype[Any]) -> np.dtype[Any]:
    """Return the layout of the C++ struct MultiplyArguments."""
    return struct("*x *y *values *workspace accumulate", ("alpha", scalar))
