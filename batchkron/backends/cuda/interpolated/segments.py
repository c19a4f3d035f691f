"""Segments of sorted points, and how the kernels of ``interpolated/segments.cuh`` are cut.

No device is needed here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.backends.cuda.interpolated.kernel import THREADS
from batchkron.backends.cuda.runtime.hardware import WARP, DeviceLimits, power_of_two
from batchkron.backends.cuda.runtime.program import SCALARS, Program, template_type
from batchkron.spec.interpolated import WEIGHTS, Windows

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


@dataclass(frozen=True, slots=True)
class SegmentBounds:
    """How many segments and cells of their spans any points of one grid may need.

    Attributes
    ----------
    points : int
        Points of a segment at least, where a row has so many.
    segments : int
    spans : int
        Cells of all spans.
    """

    points: int
    segments: int
    spans: int


def segment_bounds(sizes: tuple[int, ...], count: int, device: DeviceLimits) -> SegmentBounds:
    """Return the bounds for ``count`` points in a grid.

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
    return SegmentBounds(points, segments, spans)


def vectors_at_once(
    sizes: tuple[int, ...], bounds: SegmentBounds, vectors: int, itemsize: int
) -> int:
    """Return how many of some vectors may be taken at a time, 0 if there is no room for one."""
    leads = WEIGHTS ** (len(sizes) - 1)
    if math.prod(sizes) > _MAX_CELLS or bounds.spans >= _MAX_SPANS:
        return 0
    while vectors and vectors * bounds.spans * leads * itemsize > _MAX_PARTIAL:
        vectors //= 2
    return vectors


@dataclass(frozen=True, slots=True)
class Segments:
    """Segments of points as kernels read them, on the host.

    Attributes
    ----------
    entries : ndarray of int32, (n, 2)
        Places and last corners of points.
    segments : ndarray of int32, (segments + 1, 4)
        The cells of all spans before, a span's cells, its first one, its first point. Those that
        are not needed begin behind the last point.
    covers : ndarray of int32, (rows P_N, 2)
        For each row and each cell of the last mode the first segment that meets it, and the one
        behind the last.
    """

    entries: NDArray[np.int32]
    segments: NDArray[np.int32]
    covers: NDArray[np.int32]

    @property
    def arrays(self) -> tuple[NDArray[np.int32], ...]:
        """All arrays, in the order of the kernels' arguments."""
        return self.entries, self.segments, self.covers

    @property
    def deepest(self) -> int:
        """The largest number of segments of a row that meet a cell."""
        return int((self.covers[:, 1] - self.covers[:, 0]).max(initial=0))


def segments_of(windows: Windows, bounds: SegmentBounds) -> Segments:
    """Return the segments of points.

    A row with many points has longer segments, of sqrt(q / 8) for q points: if all points are in
    one bin the sum over segments takes as long as that over points.
    """
    *leading, last = windows.sizes
    rows = math.prod(size - WEIGHTS + 1 for size in leading)
    columns, count = windows.corners[:, -1], len(windows.places)
    numbers = np.zeros(count, np.int64)
    for k, size in enumerate(leading):
        numbers = numbers * (size - WEIGHTS + 1) + windows.corners[:, k]
    found, begins, lengths = np.unique(numbers, return_index=True, return_counts=True)
    each = np.maximum(bounds.points, np.ceil(np.sqrt(lengths / 8)).astype(np.int64))
    pieces = -(-lengths // each)
    before = np.repeat(np.cumsum(pieces) - pieces, pieces)
    number = np.arange(pieces.sum()) - before  # of a segment in its row
    begin = np.repeat(begins, pieces) + np.repeat(lengths, pieces) * number // np.repeat(
        pieces, pieces
    )
    end = np.append(begin[1:], count)[: len(begin)]
    row, first, behind = np.repeat(found, pieces), columns[begin], columns[end - 1] + WEIGHTS
    spans = -(-(behind - first) // WEIGHTS) * WEIGHTS
    segments = np.zeros((bounds.segments + 1, 4), np.int32)
    segments[:, 3] = count
    segments[: len(begin)] = np.stack([np.cumsum(spans) - spans, spans, first, begin], axis=1)
    # how many segments end before each cell, and how many begin there or before
    ends = np.bincount(row * last + behind - 1, minlength=rows * last)
    covers = np.empty((rows * last, 2), np.int32)
    covers[:, 0] = np.cumsum(ends) - ends
    covers[:, 1] = np.cumsum(np.bincount(row * last + first, minlength=rows * last))
    entries = np.stack([windows.places, columns], axis=1).astype(np.int32)
    return Segments(entries, segments, covers)


@dataclass(frozen=True, slots=True)
class SegmentCut:
    """How a segment is given to threads.

    Attributes
    ----------
    inner : int
        The modes before the last one whose weights a thread keeps: it has 4^inner leads.
    batch : int
        Points that are loaded together.
    """

    inner: int
    batch: int


def segment_cut(modes: int, vectors: int, itemsize: int) -> SegmentCut:
    """Return how a segment is given to threads: one lead each while these are few."""
    lanes = vectors * WEIGHTS ** (modes - 1)
    inner = int(modes > 1 and lanes > _MAX_LANES) if INNER is None else min(INNER, modes - 1)
    return SegmentCut(inner, 4 if (inner + 1) * itemsize <= 8 else 2)


def segment_lanes(modes: int, vectors: int, cut: SegmentCut) -> int:
    """Return how many threads have a segment."""
    return vectors << 2 * (modes - 1 - cut.inner)


@dataclass(frozen=True, slots=True)
class CellCut:
    """How sums over segments are given to lanes.

    Attributes
    ----------
    share : int
        Lanes of a sum, a power of two.
    turns : int
        How many of these take turns at the segments of a row; the others share the leads.
    """

    share: int
    turns: int


def cell_cut(sizes: tuple[int, ...], vectors: int, deepest: int, device: DeviceLimits) -> CellCut:
    """Return how sums over at most ``deepest`` segments of each row are given to lanes."""
    wanted = _CELL_THREADS * device.multiprocessors
    lanes = min(WARP, power_of_two(-(-wanted // (math.prod(sizes) * vectors))))
    leads = WEIGHTS ** (len(sizes) - 1)
    turns = min(lanes, power_of_two(deepest // 2 + 1) // 2 or 1)
    if deepest > 16 * WARP:  # most of the points are in a few cells
        lanes = turns = WARP
    return CellCut(min(lanes, turns * leads), turns)


def segments_program(dtype: np.dtype[Any], modes: int, vectors: int, cut: SegmentCut) -> Program:
    """Return the kernel that sums over the points of segments."""
    options = SCALARS[dtype], modes, vectors, cut.inner, cut.batch, THREADS
    return Program(
        "cuda/interpolated/segments.cuh", template_type("interpolate_segments", *options)
    )


def cells_program(dtype: np.dtype[Any], modes: int, vectors: int, cut: CellCut) -> Program:
    """Return the kernel that sums over segments."""
    options = SCALARS[dtype], modes, vectors, cut.share, cut.turns, THREADS
    return Program("cuda/interpolated/segments.cuh", template_type("interpolate_cells", *options))
