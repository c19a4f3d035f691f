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

_MOST_MODES = 12
_LEAST_ELEMENTS = 32  # fewer leave most of a warp idle: several systems then share one, in lists
_MOST_THREADS = 512
_MOST_HELD = 16  # elements of a thread, in registers
_USUAL_HELD = 4


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
    if len(sizes) > _MOST_MODES or size < _LEAST_ELEMENTS:
        return None
    whole = fibres % WARP == 0 and fibres <= _MOST_THREADS and sizes[0] <= _MOST_HELD
    threads = fibres if whole else _warps(size, _USUAL_HELD)
    tiling = SumTiling(tuple(sizes), threads, -(-size // threads))
    if tiling.held > _MOST_HELD or tiling.elements * itemsize > limits.shared_bytes:
        return None
    return tiling


def _warps(size: int, held: int) -> int:
    return min(_MOST_THREADS, -(-size // (held * WARP)) * WARP)


def system_sum_type(dtype: np.dtype[np.generic], tiling: SumTiling) -> str:
    """Return how a thread block applies the Kronecker sum of a system."""
    return template_type("SystemSum", SCALARS[dtype], tiling.threads, *tiling.sizes)


def sum_program(dtype: np.dtype[np.generic], tiling: SumTiling) -> Program:
    """Return the kernel of Kronecker sums of many systems."""
    return Program(
        "cuda/kron_sum/systems.cuh", template_type("kron_sum", SCALARS[dtype], system_sum_type(dtype, tiling))
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
