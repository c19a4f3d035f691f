"""The kernel of linear combinations, ``csrc/cuda/vector_sum.cuh``, and its arguments."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.runtime.program import Program, device_program

MAX_VECTORS = 8  # of one kernel, which keeps 4 elements of each in registers


def vector_sum_program(dtype: np.dtype[np.generic], threads: int, vectors: int) -> Program:
    """Return the kernel of sums of so many vectors of float32 or float64."""
    options = dtype, threads, vectors
    return device_program("vector_sum", "vector_sum", *options)


@cache
def vector_sum_arguments(dtype: np.dtype[Any], vectors: int) -> np.dtype[Any]:
    """Return the layout of the C++ struct VectorSumArguments."""
    fields = [("x", "u8", (vectors,)), ("y", "u8"), ("count", "i8"), ("factors", dtype, (vectors,))]
    return np.dtype(fields, align=True)
