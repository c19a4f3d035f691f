"""The kernel of products with diagonal matrices, ``csrc/cuda/diagonal.cuh``, and its arguments."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.runtime.arguments import struct
from batchkron.backends.cuda.runtime.program import Program, device_program


def diagonal_program(dtype: np.dtype[np.generic], threads: int, repeated: bool) -> Program:
    """Return the kernel of products with diagonal matrices."""
    options = dtype, threads, repeated
    return device_program("diagonal", "diagonal_multiply", *options)


@cache
def diagonal_arguments(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the layout of the C++ struct DiagonalArguments."""
    return struct("*x *y *d count period inner scaled accumulate", ("alpha", dtype))
