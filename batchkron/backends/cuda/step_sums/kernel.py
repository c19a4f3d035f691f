"""The kernel of sums in steps, ``csrc/cuda/step_sum.cuh``, and its arguments."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.runtime.arguments import struct
from batchkron.backends.cuda.runtime.program import Program, device_program

ADDRESSES = ("y", "rows", "step", "results", "partial", "ended")
"""The addresses behind those of the vectors."""
MAX_VECTORS = 16
"""Most vectors of a kernel, which has all of their addresses as arguments; chosen by hand."""


def step_sum_program(dtype: np.dtype[np.generic], threads: int, vectors: int) -> Program:
    """Return the kernel of sums of so many vectors of float32 or float64."""
    return device_program("step_sum", "step_sum", dtype, threads, vectors)


@cache
def step_sum_arguments(vectors: int) -> np.dtype[Any]:
    """Return the layout of the C++ struct StepSumArguments."""
    pointers = " ".join(f"*{name}" for name in ADDRESSES)
    return struct(f"*x[{vectors}]", pointers, "count width first columns result ends")
