"""Functions in the place of cuBLAS's, which multiply matrices in the host's memory."""

import ctypes
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np

from batchkron.backends.cuda.runtime import matrix_library

P, INT, L, Z = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong, ctypes.c_size_t
TYPES = {2: "float16", 0: "float32", 1: "float64"}  # cudaDataType
SIGNATURES = (
    (ctypes.POINTER(P),),
    (P, INT),
    (P, P),
    (P, P, Z),
    (
        P,
        INT,
        INT,
        INT,
        INT,
        INT,
        P,
        P,
        INT,
        INT,
        L,
        P,
        INT,
        INT,
        L,
        P,
        P,
        INT,
        INT,
        L,
        INT,
        INT,
        INT,
    ),
)


class FakeLibrary:
    """Notes streams, workspaces and calls; a call returns `status`."""

    def __init__(self, status=0):
        self.status = status
        self.streams, self.workspaces, self.modes, self.calls = [], [], [], 0
        calls = self._create, self._mode, self._stream, self._workspace, self._multiply
        self._functions = [
            ctypes.CFUNCTYPE(INT, *types)(call)
            for types, call in zip(SIGNATURES, calls, strict=True)
        ]

    @property
    def addresses(self):
        return tuple(ctypes.cast(one, P).value for one in self._functions)

    @contextmanager
    def installed(self):
        """Takes cuBLAS's place in a block."""
        matrix_library._library.cache_clear()
        with (
            patch.object(matrix_library, "_functions", lambda: self.addresses),
            patch.object(matrix_library, "_refuse", self.refuse),
        ):
            yield self
        matrix_library._library.cache_clear()

    @staticmethod
    def refuse(status):
        raise OSError(f"status {status}")

    def _create(self, handle):
        handle[0] = 77
        return 0

    def _mode(self, handle, mode):
        self.modes.append((handle, mode))
        return 0

    def _stream(self, handle, stream):
        self.streams.append((handle, stream))
        return 0

    def _workspace(self, handle, workspace, size):
        self.workspaces.append((handle, workspace, size))
        return 7 if workspace % 256 else 0  # CUBLAS_STATUS_INVALID_VALUE

    def _multiply(self, handle, trans_a, trans_b, m, n, k, alpha, a, a_type, lda, stride_a,
                  b, b_type, ldb, stride_b, beta, c, c_type, ldc, stride_c, count, compute,
                  algorithm):  # fmt: skip
        assert (handle, algorithm) == (77, -1)
        assert a_type == b_type == c_type
        scalar = {68: np.float32, 70: np.float64}[compute]
        factor, kept = (np.ctypeslib.as_array(
            ctypes.cast(one, ctypes.POINTER(np.ctypeslib.as_ctypes_type(scalar))), (1,)
        )[0] for one in (alpha, beta))  # fmt: skip
        dtype, sums = np.dtype(TYPES[a_type]), scalar

        def matrices(address, rows, columns, step, stride):
            size = ((count - 1) * stride + (columns - 1) * step + rows) * dtype.itemsize
            flat = np.frombuffer((ctypes.c_char * size).from_address(address), dtype)
            strides = [dtype.itemsize * one for one in (stride, 1, step)]
            return np.lib.stride_tricks.as_strided(flat, (count, rows, columns), strides)

        A = matrices(a, *((k, m) if trans_a else (m, k)), lda, stride_a).astype(sums)
        B = matrices(b, *((n, k) if trans_b else (k, n)), ldb, stride_b).astype(sums)
        C = matrices(c, m, n, ldc, stride_c)
        A = A.swapaxes(1, 2) if trans_a else A
        B = B.swapaxes(1, 2) if trans_b else B
        product = factor * (A @ B)
        C[...] = product + kept * C.astype(sums) if kept else product
        self.calls += 1
        return self.status
