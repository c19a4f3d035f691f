"""libbatchkron by ctypes: what the tests of the C interface call."""

import ctypes

import numpy as np

from batchkron.config import library_folder

DTYPES = {np.float32: 0, np.float64: 1, np.complex64: 2, np.complex128: 3}
OK, INVALID, OVERFLOW, NO_MEMORY = range(4)
C = ctypes.CDLL(library_folder() / "libbatchkron.so")
C.bk_last_error.restype = C.bk_version.restype = C.bk_status_text.restype = ctypes.c_char_p


class List(ctypes.Structure):
    _fields_ = [
        ("num_modes", ctypes.c_int32), ("transposed", ctypes.c_int32),
        ("rows", ctypes.c_void_p), ("columns", ctypes.c_void_p), ("pool_counts", ctypes.c_void_p),
        ("num_inputs", ctypes.c_int64), ("num_outputs", ctypes.c_int64), ("count", ctypes.c_int64),
        ("ids", ctypes.c_void_p), ("inputs", ctypes.c_void_p), ("outputs", ctypes.c_void_p),
    ]  # fmt: skip


class Part(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("source", "mode", "num_matrices")),
        *((name, ctypes.c_void_p) for name in ("starts", "ids", "children")),
    ]  # fmt: skip


class Step(ctypes.Structure):
    _fields_ = [
        ("target", ctypes.c_int64), ("adds", ctypes.c_int32), ("num_parts", ctypes.c_int32),
        ("parts", ctypes.POINTER(Part)),
    ]  # fmt: skip


class RefusedError(Exception):
    """A status other than BK_OK, with its text."""

    def __init__(self, status):
        super().__init__(C.bk_last_error().decode())
        self.status = status


def call(name, *arguments):
    """Call a function of the library; arrays become addresses, ints 64-bit numbers."""
    status = getattr(C, name)(*map(argument, arguments))
    if status != OK:
        raise RefusedError(status)


def argument(value):
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    return ctypes.c_int64(value) if isinstance(value, int) else value


def sizes(*values):
    return np.array(values, np.int64)


def addresses(arrays):
    """Return an array of pointers; the arrays have to live as long as it is used."""
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


def number(value, dtype):
    return None if value is None else np.array([value], dtype)


class Plan:
    """A plan of the library, made by ``bk_KIND_create``."""

    def __init__(self, kind, dtype, *arguments):
        self._as_parameter_, self.kind, self.dtype = ctypes.c_void_p(1), kind, dtype
        call(f"bk_{kind}_create", ctypes.byref(self._as_parameter_), DTYPES[dtype], *arguments)

    def run(self, *arguments):
        call(f"bk_{self.kind}_run", self._as_parameter_, *arguments)

    def set_values(self, *arguments):
        call(f"bk_{self.kind}_set_values", self._as_parameter_, *arguments)

    def __del__(self):
        getattr(C, f"bk_{self.kind}_destroy")(self._as_parameter_)
