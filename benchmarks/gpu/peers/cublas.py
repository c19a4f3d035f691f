"""Chains of cuBLAS calls on CuPy arrays.

CuPy's own functions refuse to be captured in a graph where they call cuBLAS, so that the library
which CuPy has loaded is called directly: the same kernels, and nothing on the host between them.
"""

import ctypes
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import cupy

from benchmarks.gpu.peers import chains
from benchmarks.gpu.peers.chains import gemm

WORKSPACE_BYTES = 32 << 20  # what NVIDIA recommends for compute capability 9.0
_TYPES = {"float32": ("S", ctypes.c_float), "float64": ("D", ctypes.c_double)}


class Library:
    """cuBLAS with a handle of its own."""

    def __init__(self):
        cupy.cuda.device.get_cublas_handle()  # CuPy loads the library
        maps = Path("/proc/self/maps").read_text().splitlines()
        paths = {line.split()[-1] for line in maps if "libcublas.so" in line}
        if not paths:
            raise RuntimeError("CuPy has not loaded libcublas.so")
        self._library = ctypes.CDLL(min(paths))
        self._handle = ctypes.c_void_p()
        self._check(self._library.cublasCreate_v2(ctypes.byref(self._handle)))
        self._workspace = cupy.cuda.alloc(WORKSPACE_BYTES)

    @staticmethod
    def _check(status):
        if status:
            raise RuntimeError(f"cuBLAS status {status}")

    @contextmanager
    def on(self, stream):
        """Run on a stream, with memory of our own, as a captured graph must."""
        self._check(self._library.cublasSetStream_v2(self._handle, ctypes.c_void_p(stream.ptr)))
        memory = ctypes.c_void_p(self._workspace.ptr), ctypes.c_size_t(WORKSPACE_BYTES)
        self._check(self._library.cublasSetWorkspace_v2(self._handle, *memory))
        yield

    def call(self, one, factor, x, y):
        """A multiply, ready to be called; it keeps its arrays."""
        letter, scalar = _TYPES[factor.dtype.name]
        function = getattr(self._library, f"cublas{letter}gemmStridedBatched")
        alpha, beta = scalar(1), scalar(0)
        held = (*((factor, x) if one.factor_first else (x, factor)), y)
        a, b, c = (
            (ctypes.c_void_p(array.data.ptr), ctypes.c_int(leading), ctypes.c_longlong(stride))
            for array, leading, stride in zip(held, one.leading, one.strides, strict=True)
        )
        sizes = map(ctypes.c_int, (*one.transposed, one.m, one.n, one.k))
        first = (self._handle, *sizes, ctypes.byref(alpha), *a, *b)
        arguments = (*first, ctypes.byref(beta), *c, ctypes.c_int(one.batch))

        def run(held=held):
            self._check(function(*arguments))

        return run


@cache
def library():
    return Library()


def kron_calls(shape, factors, pairs, buffers):
    """The calls of each form of the chain. ``factors`` are A_k (outputs, inputs) on the device."""

    def multiply(step, *given):
        return library().call(gemm(step), *given)

    return chains.kron_calls(shape, factors, pairs, buffers, multiply)
