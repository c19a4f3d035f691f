"""The kernels of interpolation, ``csrc/cuda/interpolated``: how work is cut, and their arguments.

The transpose by the owners of cells is for grids whose sums over segments have no room in memory
(see `segments`); elsewhere it was slower (docs/results/frameworks.md).
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.backends.cuda.runtime.arguments import struct
from batchkron.backends.cuda.runtime.hardware import WARP, DeviceLimits, power_of_two
from batchkron.backends.cuda.runtime.program import Program, device_program
from batchkron.spec.interpolated import WEIGHTS, Windows, cell_numbers
from batchkron.spec.kron import Array

THREADS = 128
"""Threads of a thread block; chosen by hand."""

MAX_VECTORS = 16
"""Vectors of one launch, kMaxVectors of ``windows.cuh``."""

RESIDENT_THREADS = 1024
"""Threads of a multiprocessor, so many that latency is hidden; chosen by hand."""

_BLOCKS_PER_PROCESSOR = 16  # that a multiprocessor can hold; more take several turns
_MAX_HELD = 4  # vectors of a thread that scatters: as many sums for each of its cells
_CELLS = 4  # of a thread that scatters, where there are enough threads
_MAX_POINTS = 2**31 - 32  # numbers of points, to which kernels add up to 32, have 32 bits


def window_arrays(windows: Windows) -> dict[str, Array]:
    """Return windows as kernels read them, where they are; ValueError if there are too many points.

    A window's first cell is a number in the whole grid.
    """
    if len(windows.places) >= _MAX_POINTS:
        raise ValueError(
            f"points has {len(windows.places)} rows; expected fewer than {_MAX_POINTS} on a CUDA "
            f"device"
        )
    return {
        "weights": windows.weights,
        "corners": cell_numbers(windows.corners, windows.sizes),
        "places": windows.places.astype(np.int32),
    }


def bin_starts(windows: Windows) -> NDArray[np.int32]:
    """Return where the points of each bin begin, (bins + 1,); a bin has all points of one corner.

    Bins are in the order of corners.
    """
    bins = [size - WEIGHTS + 1 for size in windows.sizes]
    module = array_module(windows.corners)
    numbers = module.arange(math.prod(bins) + 1)
    starts: NDArray[np.int32] = module.searchsorted(cell_numbers(windows.corners, bins), numbers)
    return starts.astype(np.int32)


def scatter_owners(sizes: tuple[int, ...], vectors: int, held: int, cells: int) -> int:
    """Return how many owners the cells have."""
    *rows, last = sizes
    return math.prod(rows) * -(-last // cells) * (vectors // held)


def scatter_cut(
    sizes: tuple[int, ...], fullest: int, vectors: int, device: DeviceLimits
) -> tuple[int, int, int]:
    """Return how cells are given to threads, for bins of at most ``fullest`` points.

    They are vectors of a thread, its neighbouring cells of the last mode, and lanes that share the
    points of these cells, a power of two. A thread with several cells loads a point's weights for
    all of them. Where there are too few threads for the device it has one cell, and lanes share its
    points as far as bins have several.
    """
    wanted = RESIDENT_THREADS * device.multiprocessors
    held = min(vectors, _MAX_HELD)
    for cells in (_CELLS, 1):
        owners = scatter_owners(sizes, vectors, held, cells)
        if owners >= wanted:
            return held, cells, 1
    share = min(WARP, power_of_two(-(-wanted // owners)), power_of_two(fullest + 1) // 2)
    return held, 1, max(1, share)


def gather_lanes(modes: int, vectors: int) -> int:
    """Return how many lanes compute a point, `lanes` of GatherCut in ``gather.cuh``."""
    row = WEIGHTS * vectors
    return min(WARP, WEIGHTS * row if modes > 1 else row)


def blocks_for(threads: int, device: DeviceLimits) -> int:
    """Return the thread blocks for so many threads, which take several turns if they are many."""
    return max(1, min(_BLOCKS_PER_PROCESSOR * device.multiprocessors, -(-threads // THREADS)))


def interpolation_program(kernel: str, dtype: np.dtype[Any], *sizes: int) -> Program:
    """Return a kernel: "gather", "scatter", "segments", "cells" or "fold".

    ``sizes``: the modes, but of "fold", the vectors, and the numbers of its cut, if it has one.
    """
    header = "segments" if kernel == "cells" else kernel
    return device_program(f"interpolated/{header}", f"interpolate_{kernel}", dtype, *sizes, THREADS)


@cache
def interpolation_arguments(dtype: np.dtype[Any], modes: int) -> np.dtype[Any]:
    """Return the layout of the C++ struct InterpolationArguments."""
    pointers = "*points *grid *partial *weights *corners *places *starts"
    lists = "*entries *segments *covers count segment_count point_step cell_step"
    vectors = f"sizes[{modes}] steps[{modes}] vectors[{MAX_VECTORS}] accumulate"
    return struct(pointers, lists, vectors, ("alpha", dtype))


def sized_arguments(
    dtype: np.dtype[Any], sizes: tuple[int, ...], cell_step: int, point_step: int, count: int
) -> Array:
    """Return arguments without addresses, vectors and scalars."""
    arguments = np.zeros(1, interpolation_arguments(dtype, len(sizes)))
    arguments["count"], arguments["point_step"] = count, point_step
    arguments["cell_step"], arguments["sizes"] = cell_step, sizes
    arguments["steps"] = [math.prod(sizes[k + 1 :]) * cell_step for k in range(len(sizes))]
    return arguments
