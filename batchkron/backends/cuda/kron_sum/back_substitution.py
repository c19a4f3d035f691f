"""The kernel of back substitution, ``csrc/cuda/kron_sum/back_substitution.cuh``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.runtime.arguments import struct
from batchkron.backends.cuda.runtime.hardware import WARP, DeviceLimits
from batchkron.backends.cuda.runtime.program import Program, device_program

THREADS = 128
"""Threads of a thread block; chosen by hand."""

_BLOCKS_PER_PROCESSOR = 16  # largest number of thread blocks per multiprocessor; chosen by hand


def back_substitution_program(dtype: np.dtype[Any], modes: int) -> Program:
    """Return the kernel for complex triangles."""
    real = dtype.type(0).real.dtype
    return device_program("kron_sum/back_substitution", "back_substitute", real, modes, THREADS)


def back_substitution_blocks(sizes: Sequence[int], inner: int, device: DeviceLimits) -> int:
    """Return the thread blocks of a step, with a warp for each index of the leading modes."""
    warps = math.prod(sizes[:-1]) * inner
    maximum = _BLOCKS_PER_PROCESSOR * device.multiprocessors
    return max(1, min(maximum, -(-warps * WARP // THREADS)))


def levels(sizes: Sequence[int]) -> range:
    """Return the sums of multi-indices in the order in which their unknowns are found."""
    return range(sum(sizes) - len(sizes), -1, -1)


@cache
def back_substitution_arguments(dtype: np.dtype[Any], modes: int) -> np.dtype[Any]:
    """Return the layout of the C++ struct BackSubstitutionArguments."""
    return struct(f"*x *triangles[{modes}] sizes[{modes}] inner level", ("shift", dtype))
