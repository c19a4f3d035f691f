"""Interpolation from windows of a grid, and its transpose, planned for one device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from batchkron.backends.cuda.interpolated.kernel import (
    THREADS,
    bin_starts,
    blocks_for,
    gather_lanes,
    interpolation_program,
    scatter_cut,
    scatter_owners,
    sized_arguments,
    window_arrays,
)
from batchkron.backends.cuda.interpolated.pieces import (
    fold_arguments,
    gather_cut,
    in_pieces,
    scatter_cut_modes,
)
from batchkron.backends.cuda.interpolated.segments import (
    cell_cut,
    deepest_of,
    segment_bounds,
    segment_cut,
    segment_lanes,
    segments_of,
    vectors_at_once,
)
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    Workspaces,
    check_device,
    current_device,
    device_errors,
    device_limits,
    load_kernel,
    place,
    ready_stream,
    upload,
)
from batchkron.backends.cuda.runtime.launch import BoundedCache, Launch, batch_scalars
from batchkron.backends.cuda.runtime.program import Program
from batchkron.spec.interpolated import WEIGHTS, Windows
from batchkron.spec.kron import Array

_MAX_BLOCKS = 2**31 - 1  # of a launch


# Vectors of points and of cells, as `InterpolationPlan.scatter` takes them.
_Vectors: TypeAlias = tuple[DeviceArray, int, Sequence[int], DeviceArray, int, int]


class InterpolationPlan:
    """W of shape (points, cells) for fixed windows on one device; see the protocol.

    Windows may be cut into pieces, for W and for its transpose at different modes: a few points
    in many modes would keep few threads busy, and cells would look for points in vain. Then the
    values of a point's pieces are gathered to a workspace, and added.
    """

    def __init__(self, windows: Windows) -> None:
        self._device, self._dtype = current_device(), windows.weights.dtype
        self._count, modes = len(windows.places), len(windows.sizes)
        limits = device_limits(self._device)
        self._gather_cut = gather_cut(modes, self._count, limits)
        self._scatter_cut = scatter_cut_modes(windows.sizes, self._count)
        self._back = _WindowsPlan(in_pieces(windows, self._scatter_cut, shared=True))
        self._there = self._back
        if self._gather_cut or self._scatter_cut:
            self._there = _WindowsPlan(self._gathered(windows), transposed=False)
        self._workspaces = Workspaces()
        self._scalars = batch_scalars(self._dtype)
        self._folds: BoundedCache[tuple[int, tuple[int, ...]], Launch] = BoundedCache()

    def _gathered(self, windows: Windows) -> Windows:
        return in_pieces(windows, self._gather_cut, shared=False)

    def set_windows(self, windows: Windows) -> None:
        """Copy windows of as many points in the same grid in place, so that graphs use them."""
        self._back.set_windows(in_pieces(windows, self._scatter_cut, shared=True))
        if self._there is not self._back:
            self._there.set_windows(self._gathered(windows))

    def scatter(
        self,
        points: DeviceArray,
        point_step: int,
        vectors: Sequence[int],
        grid: DeviceArray,
        cell_step: int,
        column: int,
    ) -> None:
        """Write W^T points to the grid, in two launches for as many vectors as there is room."""
        self._back.scatter((points, point_step, vectors, grid, cell_step, column))

    def gather(
        self,
        grid: DeviceArray,
        cell_step: int,
        column: int,
        points: DeviceArray,
        point_step: int,
        vectors: Sequence[int],
        alpha: float,
        accumulate: bool,
    ) -> None:
        """Write alpha W grid to the points, or add it, in one launch or two."""
        if not self._gather_cut:
            there = points, point_step, vectors, grid, cell_step, column
            self._there.gather(there, self._scalars(alpha, accumulate))
            return
        if not self._count:
            return
        check_device(self._device, points, grid)
        pieces, count = WEIGHTS**self._gather_cut, len(vectors)
        partial = self._workspaces.array(pieces * self._count * count, self._dtype)
        there = partial, count, tuple(range(count)), grid, cell_step, column
        self._there.gather(there, self._scalars(1, False))
        with device_errors():
            addresses = points.data.ptr, partial.data.ptr
            fold = self._fold(point_step, tuple(vectors))
            fold(ready_stream(self._device), addresses, self._scalars(alpha, accumulate))

    def _fold(self, point_step: int, vectors: tuple[int, ...]) -> Launch:
        """Return the launch that adds the pieces of all points."""
        known = self._folds.get((point_step, vectors))
        if known is None:
            arguments = np.zeros(1, fold_arguments(self._dtype))
            arguments["count"], arguments["point_step"] = self._count, point_step
            arguments["pieces"] = WEIGHTS**self._gather_cut
            arguments["vectors"][0, : len(vectors)] = vectors
            threads = self._count * len(vectors)
            blocks = blocks_for(threads, device_limits(self._device))
            program = interpolation_program("fold", self._dtype, len(vectors))
            kernel = load_kernel(program, self._device)
            known = Launch(kernel, (blocks, 1), THREADS, 0, arguments, 2, "accumulate")
            self._folds[point_step, vectors] = known
        return known


def interpolation_plan(
    windows: Windows, known: InterpolationPlan | None = None
) -> InterpolationPlan:
    """Return the plan of interpolation, which is the known one with new windows if there is one."""
    if known is None:
        return InterpolationPlan(windows)
    known.set_windows(windows)
    return known


class _WindowsPlan:
    """The kernels for whole windows, of which several may have one place for the transpose.

    The transpose is by segments of points where there is memory for their sums, else by the owners
    of cells; without ``transposed`` there is none. Launches are kept by strides and by where
    vectors lie next to the first of them.
    """

    def __init__(self, windows: Windows, *, transposed: bool = True) -> None:
        self._device, self._transposed = current_device(), transposed
        self._sizes, self._dtype = windows.sizes, windows.weights.dtype
        self._count = len(windows.places)
        limits = device_limits(self._device)
        bounds = segment_bounds(self._sizes, self._count, limits)
        self._points, self._segments, self._spans = bounds
        self._by_segments = self._at_once(1) > 0
        arrays = self._stored(windows)
        self._names = tuple(arrays)
        self._arrays = place(tuple(arrays.values()))
        self._workspaces = Workspaces()
        self._launches: BoundedCache[tuple[str, int, int, tuple[int, ...]], Launch] = BoundedCache()

    def _at_once(self, vectors: int) -> int:
        return vectors_at_once(self._sizes, self._spans, vectors, self._dtype.itemsize)

    def _stored(self, windows: Windows) -> dict[str, Array]:
        """Return the arrays that kernels read, by their names.

        The deepest place of the sums is noted, from which the lanes of a sum follow: a cell of the
        last mode and the segments of a row that meet it, or a bin and its points.
        """
        arrays = window_arrays(windows)
        if not self._transposed:
            return arrays
        if self._by_segments:
            segments = segments_of(windows, self._points, self._segments)
            self._deepest = deepest_of(segments[2])
            return arrays | dict(zip(("entries", "segments", "covers"), segments, strict=True))
        starts = bin_starts(windows)
        self._deepest = int((starts[1:] - starts[:-1]).max())  # a device is waited for
        return arrays | {"starts": starts}  # only owners read them

    def set_windows(self, windows: Windows) -> None:
        """Copy windows of as many points in the same grid in place, so that graphs use them."""
        upload(tuple(self._stored(windows).values()), self._arrays)

    def _launch(self, kind: str, point_step: int, cell_step: int, apart: tuple[int, ...]) -> Launch:
        """Return the launch for vectors at these distances from the first one."""
        key = kind, point_step, cell_step, apart
        known = self._launches.get(key)
        if known is None:
            program, threads, scalars = self._kernel(kind, len(apart))
            count = self._count
            arguments = sized_arguments(self._dtype, self._sizes, cell_step, point_step, count)
            for name, array in zip(self._names, self._arrays, strict=True):
                arguments[name] = array.data.ptr
            arguments["segment_count"] = self._segments
            arguments["vectors"][0, : len(apart)] = apart
            blocks = blocks_for(threads, device_limits(self._device))
            if kind == "segments":  # they take different times: no thread has two
                blocks = max(blocks, min(_MAX_BLOCKS, -(-threads // THREADS)))
            kernel = load_kernel(program, self._device)
            known = Launch(kernel, (blocks, 1), THREADS, 0, arguments, 3, scalars)
            self._launches[key] = known
        return known

    def _kernel(self, kind: str, vectors: int) -> tuple[Program, int, str]:
        """Return a kernel, how many threads have work, and the first scalar of a call."""
        modes, sizes, limits = len(self._sizes), self._sizes, device_limits(self._device)
        of_kernel = self._dtype, modes, vectors
        if kind == "gather":
            threads = self._count * gather_lanes(modes, vectors)
            return interpolation_program(kind, *of_kernel), threads, "accumulate"
        if kind == "segments":
            by = segment_cut(modes, vectors, self._dtype.itemsize)
            threads = self._segments * segment_lanes(modes, vectors, by[0])
            return interpolation_program(kind, *of_kernel, *by), threads, ""
        if kind == "cells":
            of = cell_cut(sizes, vectors, self._deepest, limits)
            threads = math.prod(sizes) * vectors * of[0]
            return interpolation_program(kind, *of_kernel, *of), threads, ""
        cut = scatter_cut(sizes, self._deepest, vectors, limits)
        threads = scatter_owners(sizes, vectors, *cut[:2]) * cut[2]
        return interpolation_program(kind, *of_kernel, *cut), threads, ""

    def scatter(self, vectors: _Vectors) -> None:
        """Write W^T points to the grid, in two launches for as many vectors as there is room."""
        if not self._by_segments:
            self._run("scatter", vectors)
            return
        points, point_step, places, grid, cell_step, column = vectors
        total = len(places)
        count = self._at_once(total)
        leads = WEIGHTS ** (len(self._sizes) - 1)
        size = count * leads * self._spans * self._dtype.itemsize
        partial = self._workspaces.pointer(size)
        for first in range(0, total, count):
            some = places[first : first + count]
            at_once = points, point_step, some, grid, cell_step, column + first
            for kind in ("segments", "cells"):
                self._run(kind, at_once, partial=partial)

    def gather(self, vectors: _Vectors, scalars: bytes) -> None:
        """Write alpha W grid to the points, or add it, in one launch, as the scalars say."""
        if self._count:
            self._run("gather", vectors, scalars)

    def _run(self, kind: str, vectors: _Vectors, scalars: bytes = b"", partial: int = 0) -> None:
        points, point_step, places, grid, cell_step, column = vectors
        check_device(self._device, points, grid)
        first, itemsize = places[0], self._dtype.itemsize
        apart = tuple(place - first for place in places)
        with device_errors():
            launch = self._launch(kind, point_step, cell_step, apart)
            values = points.data.ptr + first * itemsize
            addresses = values, grid.data.ptr + column * itemsize, partial
            launch(ready_stream(self._device), addresses, scalars)
