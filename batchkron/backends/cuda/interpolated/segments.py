"""Segments of sorted points, and how the kernels of ``interpolated/segments.cuh`` are cut."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.backends.cuda.runtime.hardware import WARP, DeviceLimits, power_of_two
from batchkron.spec.interpolated import WEIGHTS, Windows, cell_numbers

MIN_POINTS = 32
"""Points of a segment at least; chosen by hand."""

INNER: int | None = None
"""If given, the modes (0 or 1) whose weights a thread keeps, in place of the rule; for benchmarks.

With two, float64's sums do not fit in registers, and were wrong on an H100.
"""

_MAX_POINTS = 256  # of a segment, where rows are not long: a thread takes one point after another
_SEGMENT_THREADS = 1024  # of a multiprocessor with segments, at least, if there are enough points
_CELL_THREADS = 2048  # of a multiprocessor that sums over segments: as many as it holds
_MAX_LANES = 16  # of a segment, so that a thread keeps the sums of one lead
_MAX_PARTIAL = 1 << 29  # bytes of sums over segments; fewer vectors at a time are taken before
_MAX_CELLS = 1 << 27  # the second kernel counts them, times 16 vectors, in 32 bits
_MAX_SPANS = 1 << 31  # cells of all spans have 32 bits


def segment_bounds(
    sizes: tuple[int, ...], count: int, device: DeviceLimits
) -> tuple[int, int, int]:
    """Return points of a segment at least, where a row has so many, and two upper bounds.

    They are how many segments any ``count`` points of a grid need, and cells of all their spans.
    A row of q points has at most 1 + q / points segments, and spans of at most its own length and 7
    cells for each segment: the rest of the last window, and 3 to fill a group of four.
    """
    *leading, last = sizes
    leads = WEIGHTS ** len(leading)
    wanted = count * leads // (_SEGMENT_THREADS * device.multiprocessors)
    points = max(MIN_POINTS, min(_MAX_POINTS, wanted))
    rows = min(count, math.prod(size - WEIGHTS + 1 for size in leading))
    segments = rows + count // points
    spans = min(rows, count // 2) * (last - WEIGHTS) + 7 * segments
    return points, segments, spans


def vectors_at_once(sizes: tuple[int, ...], spans: int, vectors: int, itemsize: int) -> int:
    """Return how many of some vectors may be taken at a time, 0 if there is no room for one."""
    leads = WEIGHTS ** (len(sizes) - 1)
    if math.prod(sizes) > _MAX_CELLS or spans >= _MAX_SPANS:
        return 0
    while vectors and vectors * spans * leads * itemsize > _MAX_PARTIAL:
        vectors //= 2
    return vectors


def deepest_of(covers: NDArray[np.int32]) -> int:
    """Return the largest number of segments of a row that meet a cell; a device is waited for."""
    return int((covers[:, 1] - covers[:, 0]).max())


def segments_of(windows: Windows, points: int, segments: int) -> tuple[NDArray[np.int32], ...]:
    """Return the segments of points as kernels read them, where the windows are.

    The arrays are places and last corners of points; of each segment the cells of all spans before,
    its span's cells, its first one and its first point, behind the last point if it is not needed;
    and for each row and cell of the last mode the first segment that meets it, and the one behind.

    A row with many points has longer segments, of sqrt(q / 8) for q points: if all points are in
    one bin the sum over segments takes as long as that over points. All arrays have the sizes of
    `segment_bounds`, so that a device is not asked how many segments there are.
    """
    module = array_module(windows.corners)
    *leading, last = windows.sizes
    bins = [size - WEIGHTS + 1 for size in leading]
    rows, count = math.prod(bins), len(windows.places)
    columns = windows.corners[:, -1]
    begins = module.searchsorted(cell_numbers(windows.corners, bins), module.arange(rows + 1))
    lengths = begins[1:] - begins[:-1]
    each = module.maximum(module.ceil(module.sqrt(lengths / 8)).astype(np.int64), points)
    pieces = -(-lengths // each)
    ends = module.cumsum(pieces)  # segments of a row and of those before

    number = module.arange(segments + 1)
    row = module.searchsorted(ends, number, side="right")
    used = row < rows
    of = module.minimum(row, rows - 1)
    in_row = number - (ends[of] - pieces[of])
    begin = begins[of] + lengths[of] * in_row // module.maximum(pieces[of], 1)
    begin = module.where(used, begin, count)
    padded = module.concatenate([columns, module.zeros(1, np.int64)])  # begin may be ``count``
    first, behind = padded[begin[:-1]], padded[begin[1:] - 1] + WEIGHTS
    used = used[:-1]
    spans = module.where(used, -(-(behind - first) // WEIGHTS) * WEIGHTS, 0)
    found = module.zeros((segments + 1, 4), np.int32)
    found[:, 3] = begin
    found[:-1, 0] = module.where(used, module.cumsum(spans) - spans, 0)
    found[:-1, 1] = spans
    found[:-1, 2] = module.where(used, first, 0)

    # how many segments end before each cell, and how many begin there or before
    numbers = module.arange(rows * last)
    base = row[:-1] * last  # without a segment ``rows * last``, behind all cells
    covers = module.empty((rows * last, 2), np.int32)
    behind, first = (base + module.where(used, one, 0) for one in (behind - 1, first))
    covers[:, 0] = module.searchsorted(behind, numbers, side="left")
    covers[:, 1] = module.searchsorted(first, numbers, side="right")
    entries = module.stack([windows.places, columns], axis=1).astype(np.int32)
    return entries, found, covers


def segment_cut(modes: int, vectors: int, itemsize: int) -> tuple[int, int]:
    """Return how a segment is given to threads: one lead each while these are few.

    They are the modes before the last one whose weights a thread keeps, so that it has 4^inner
    leads, and points that are loaded together.
    """
    lanes = vectors * WEIGHTS ** (modes - 1)
    inner = int(modes > 1 and lanes > _MAX_LANES) if INNER is None else min(INNER, modes - 1)
    return inner, 4 if (inner + 1) * itemsize <= 8 else 2


def segment_lanes(modes: int, vectors: int, inner: int) -> int:
    """Return how many threads have a segment."""
    return vectors << 2 * (modes - 1 - inner)


def cell_cut(
    sizes: tuple[int, ...], vectors: int, deepest: int, device: DeviceLimits
) -> tuple[int, int]:
    """Return the lanes of a sum over at most ``deepest`` segments, a power of two, and its turns.

    So many lanes take turns at the segments of a row; the others share the leads.
    """
    wanted = _CELL_THREADS * device.multiprocessors
    lanes = min(WARP, power_of_two(-(-wanted // (math.prod(sizes) * vectors))))
    leads = WEIGHTS ** (len(sizes) - 1)
    turns = min(lanes, power_of_two(deepest // 2 + 1) // 2 or 1)
    if deepest > 16 * WARP:  # most of the points are in a few cells
        lanes = turns = WARP
    return min(lanes, turns * leads), turns
