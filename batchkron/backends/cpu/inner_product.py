"""Inner products of long vectors, by a pass of the core, whose sums have a fixed order."""

from __future__ import annotations

import threading
from functools import cache

import numpy as np

from batchkron.backends.cpu import native
from batchkron.backends.cpu.environment import check_environment
from batchkron.backends.krylov_arguments import ARGUMENTS, STATE_FIELDS, Field
from batchkron.spec.kron import Array

__all__ = ["inner_product"]

_DTYPES = "fdFD"  # in the order of the core's table of passes
_N, _SYSTEMS, _PROGRESS, _X, _STATE = (
    ARGUMENTS.fields[name][1] // 8  # type: ignore[index]
    for name in ("n", "systems", "progress", "vectors", "state")
)


class _Call(threading.local):
    """The pass with its arguments, of each thread."""

    def __init__(self) -> None:
        check_environment()
        self.passes = [native.KrylovSequence(("InnerProduct",), k) for k in range(len(_DTYPES))]
        self.state, self.progress = np.zeros(STATE_FIELDS), np.zeros(2, np.int32)
        self.words = np.zeros(ARGUMENTS.itemsize // 8, np.uint64)
        self.words[_SYSTEMS] = 1
        self.words[_PROGRESS] = self.progress.ctypes.data
        self.words[_STATE] = self.state.ctypes.data
        self.address = self.words.ctypes.data


@cache
def _call_of_threads() -> _Call:
    return _Call()


def inner_product(x: Array, y: Array) -> complex:
    """Return Σ conj(x_i) y_i of contiguous vectors (n,) of one dtype, summed in double precision.

    The sums of parts of equal length are added in their order, so that the result has the same
    bits for any number of threads.
    """
    call = _call_of_threads()
    words = call.words
    words[_N] = x.size
    words[_X] = x.__array_interface__["data"][0]
    words[_X + 1] = y.__array_interface__["data"][0]
    call.passes[_DTYPES.index(x.dtype.char)].run(call.address)
    state = call.state
    return complex(state[Field.RESIDUAL], state[Field.ESTIMATE])
