"""How Kronecker sums of many small systems are cut for a device. Nothing here needs a device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.runtime.arguments import pointer_fields, size_fields
from batchkron.backends.cuda.runtime.hardware import WARP, DeviceLimits
from batchkron.backends.cuda.runtime.program import SCALARS, Program, template_type

_MAX_MODES = 12
_MIN_ELEMENTS = 32  # of a system; fewer leave most of a warp idle, and batch lists are faster
_MAX_BLOCK_THREADS = 512  # chosen by hand
_MAX_THREAD_ELEMENTS = 16  # in registers of a thread
_DEFAULT_THREAD_ELEMENTS = 4  # in registers of a thread; chosen by hand


@dataclass(frozen=True, slots=True)
class SumTiling:
    """A thread block for each vector: the sizes of its modes, its threads, elements of a thread."""

    sizes: tuple[int, ...]
    threads: int
    held: int

    @property
    def elements(self) -> int:
        """Elements in shared memory: a vector and the matrices of its system."""
        return math.prod(self.sizes) + sum(n * n for n in self.sizes)


def sum_tiling(sizes: Sequence[int], itemsize: int, limits: DeviceLimits) -> SumTiling | None:
    """Return how vectors of these sizes are cut; None where they do not fit in a thread block.

    A thread that has whole fibres of the first mode reads that mode's matrix as constants of a
    warp; else it has about four elements.
    """
    size, fibres = math.prod(sizes), math.prod(sizes[1:])
    if len(sizes) > _MAX_MODES or size < _MIN_ELEMENTS:
        return None
    whole = fibres % WARP == 0 and fibres <= _MAX_BLOCK_THREADS and sizes[0] <= _MAX_THREAD_ELEMENTS
    threads = fibres if whole else _warps(size, _DEFAULT_THREAD_ELEMENTS)
    tiling = SumTiling(tuple(sizes), threads, -(-size // threads))
    if tiling.held > _MAX_THREAD_ELEMENTS or tiling.elements * itemsize > limits.shared_bytes:
        return None
    return tiling


def _warps(size: int, held: int) -> int:
    return min(_MAX_BLOCK_THREADS, -(-size // (held * WARP)) * WARP)


def system_sum_type(dtype: np.dtype[np.generic], tiling: SumTiling) -> str:
    """Return how a thread block applies the Kronecker sum of a system."""
    return template_type("SystemSum", SCALARS[dtype], tiling.threads, *tiling.sizes)


def sum_program(dtype: np.dtype[np.generic], tiling: SumTiling) -> Program:
    """Return the kernel of Kronecker sums of many systems."""
    return Program(
        "cuda/kron_sum/systems.cuh",
        template_type("kron_sum", SCALARS[dtype], system_sum_type(dtype, tiling)),
    )


@cache
def sum_factors(modes: int) -> np.dtype[Any]:
    """Return SumFactors of ``modes`` modes."""
    return np.dtype([("data", "u8", (modes,)), ("system", "i8", (modes,))])


@cache
def sum_arguments(dtype: np.dtype[Any], modes: int) -> np.dtype[Any]:
    """Return SumArguments of ``modes`` modes."""
    factors = ("factors", sum_factors(modes))
    sizes = size_fields("systems", "inner", "accumulate")
    return np.dtype([*pointer_fields("x", "y"), factors, *sizes, ("alpha", dtype)], align=True)
