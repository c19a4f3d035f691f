"""The kernel that adds what thread blocks have summed up, ``csrc/cuda/gram/total.cuh``."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.kernel import Family, Kernel, LaunchShape, record
from batchkron.backends.cuda.runtime.arguments import struct
from batchkron.backends.cuda.runtime.program import device_program

_THREADS = 256  # of a thread block; chosen by hand
_MIN_SHARES, _MAX_SHARES = 8, 64  # threads that add the parts of one sum; chosen by hand
_MIN_PARTS = 4  # that one of them adds; chosen by hand


def total_kernel(dtype: np.dtype[Any], counts: tuple[int, ...], parts: int) -> Kernel:
    """Return the kernel that adds parts to results with ``counts`` elements.

    A part has all of these, one after another. The arguments begin with the addresses of the parts,
    which take ``launch.workspace`` bytes, and of each result.
    """
    count = sum(counts)
    wanted = 1 << (parts // _MIN_PARTS).bit_length()  # threads that add the parts of one element
    shares = max(_MIN_SHARES, min(wanted // 2, _MAX_SHARES))
    blocks = -(-count // (_THREADS // shares))
    launch = LaunchShape(
        blocks, _THREADS, 1, _THREADS * dtype.itemsize, count * parts * dtype.itemsize
    )
    layout = total_arguments(len(counts))
    arguments = record(layout, count=count, blocks=parts, ends=np.cumsum(counts))
    program = device_program("gram/total", "gram_total", dtype, len(counts), _THREADS, shares)
    return Kernel(TOTAL, (dtype, counts), None, program, launch, arguments)


TOTAL = Family("gram", "total", total_kernel)


@cache
def total_arguments(results: int) -> np.dtype[Any]:
    """Return the layout of the C++ struct GramTotalArguments."""
    return struct(f"*parts *sums[{results}] count blocks ends[{results}]")
