"""The kernel of Kronecker sums of many small systems. No device is needed here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.kernel import Family, Kernel, LaunchShape, record
from batchkron.backends.cuda.runtime.arguments import struct
from batchkron.backends.cuda.runtime.hardware import WARP, DeviceLimits
from batchkron.backends.cuda.runtime.program import device_program, template_type

_MAX_MODES = 12  # largest number of factors; chosen by hand
# Smallest vector of a system, in elements; fewer leave most of a warp idle, and batch lists are
# faster.
_MIN_ELEMENTS = 32
_MAX_BLOCK_THREADS = 512  # threads of a thread block; chosen by hand
_MAX_THREAD_ELEMENTS = 16  # elements of a vector in the registers of a thread; chosen by hand
_DEFAULT_THREAD_ELEMENTS = 4  # elements of a vector that a thread should hold; chosen by hand


@dataclass(frozen=True, slots=True)
class SumTiling:
    """One thread block per vector: mode sizes, threads, and elements ``held`` by each thread."""

    sizes: tuple[int, ...]
    threads: int
    held: int

    @property
    def elements(self) -> int:
        """Elements in shared memory: a vector and the matrices of its system."""
        return math.prod(self.sizes) + sum(n * n for n in self.sizes)


def sum_tiling(sizes: Sequence[int], itemsize: int, limits: DeviceLimits) -> SumTiling | None:
    """Return the tiling for vectors of these mode sizes, None if they do not fit a thread block.

    If possible, a thread holds whole fibres of the first mode: all threads of a warp then read the
    same entries of that mode's matrix. Otherwise it holds `_DEFAULT_THREAD_ELEMENTS` elements.
    """
    size, fibres = math.prod(sizes), math.prod(sizes[1:])
    if len(sizes) > _MAX_MODES or size < _MIN_ELEMENTS:
        return None
    whole = fibres % WARP == 0 and fibres <= _MAX_BLOCK_THREADS and sizes[0] <= _MAX_THREAD_ELEMENTS
    warps = -(-size // (_DEFAULT_THREAD_ELEMENTS * WARP))
    threads = fibres if whole else min(_MAX_BLOCK_THREADS, warps * WARP)
    tiling = SumTiling(tuple(sizes), threads, -(-size // threads))
    if tiling.held > _MAX_THREAD_ELEMENTS or tiling.elements * itemsize > limits.shared_bytes:
        return None
    return tiling


def system_sum_type(dtype: np.dtype[np.generic], tiling: SumTiling) -> str:
    """Return the C++ type that applies a system's Kronecker sum with one thread block."""
    return template_type("SystemSum", dtype, tiling.threads, *tiling.sizes)


def systems_kernel(
    work: tuple[tuple[int, ...], np.dtype[Any], int], device: DeviceLimits
) -> Kernel | None:
    """Return the kernel whose thread blocks hold a system's vector in shared memory.

    ``work``: sizes of the modes, dtype, and number of systems.

    None where a vector does not fit, or has fewer than ``_MIN_ELEMENTS`` elements: there, batch
    lists are used. Elsewhere they took 2.55 times as long in the mean (H200, docs/results/gpu.md).
    """
    sizes, dtype, systems = work
    tiling = sum_tiling(sizes, dtype.itemsize, device) if systems else None
    if tiling is None:
        return None
    program = device_program("kron_sum/systems", "kron_sum", dtype, system_sum_type(dtype, tiling))
    launch = LaunchShape(systems, tiling.threads, 1, tiling.elements * dtype.itemsize)
    arguments = record(sum_arguments(dtype, len(sizes)), systems=systems)
    return Kernel(SYSTEMS, work, tiling, program, launch, arguments)


SYSTEMS = Family("kron_sum", "systems", systems_kernel)


@cache
def sum_factors(modes: int) -> np.dtype[Any]:
    """Return the layout of the C++ struct SumFactors for ``modes`` modes."""
    return struct(f"*data[{modes}] system[{modes}]")


@cache
def sum_arguments(dtype: np.dtype[Any], modes: int) -> np.dtype[Any]:
    """Return the layout of the C++ struct SumArguments for ``modes`` modes."""
    factors = "factors", sum_factors(modes)
    return struct("*x *y", factors, "systems inner accumulate", ("alpha", dtype))
