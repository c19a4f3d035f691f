"""Interpolation from windows of a grid, and its transpose, planned for one device."""

from __future__ import annotations

from collections.abc import Sequence

from batchkron.backends.cuda.interpolated.kernel import (
    THREADS,
    blocks_for,
    device_windows,
    gather_lanes,
    gather_program,
    scatter_cut,
    scatter_owners,
    scatter_program,
    sized_arguments,
)
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
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
from batchkron.spec.interpolated import Windows

__all__ = ["InterpolationPlan"]


class InterpolationPlan:
    """W of shape (points, cells) for fixed windows on one device; see the protocol.

    Launches are kept by strides and by where vectors lie next to the first of them.
    """

    def __init__(self, windows: Windows) -> None:
        self._device = current_device()
        self._sizes, self._dtype = windows.sizes, windows.weights.dtype
        stored = device_windows(windows)
        self._count, self._fullest = len(stored.corners), stored.fullest
        self._arrays = place(stored.arrays)
        self._scalars = batch_scalars(self._dtype)
        self._launches: BoundedCache[tuple[str, int, int, tuple[int, ...]], Launch] = BoundedCache()

    def set_windows(self, windows: Windows) -> None:
        """Copy windows of as many points in the same grid in place, so that graphs use them."""
        upload(device_windows(windows).arrays, self._arrays)

    def _launch(self, kind: str, point_step: int, cell_step: int, apart: tuple[int, ...]) -> Launch:
        """Return the launch for vectors at these distances from the first one."""
        key = kind, point_step, cell_step, apart
        known = self._launches.get(key)
        if known is None:
            program, threads, scalars = self._kernel(kind, len(apart))
            count = self._count
            arguments = sized_arguments(self._dtype, self._sizes, cell_step, point_step, count)
            names = "weights", "corners", "places", "starts"
            for name, array in zip(names, self._arrays, strict=True):
                arguments[name] = array.data.ptr
            arguments["vectors"][0, : len(apart)] = apart
            blocks = blocks_for(threads, device_limits(self._device))
            kernel = load_kernel(program, self._device)
            known = Launch(kernel, (blocks, 1), THREADS, 0, arguments, 2, scalars)
            self._launches[key] = known
        return known

    def _kernel(self, kind: str, vectors: int) -> tuple[Program, int, str]:
        """Return a kernel, how many threads have work, and the first scalar of a call."""
        modes = len(self._sizes)
        if kind == "gather":
            threads = self._count * gather_lanes(modes, vectors)
            return gather_program(self._dtype, modes, vectors), threads, "accumulate"
        cut = scatter_cut(self._sizes, self._fullest, vectors, device_limits(self._device))
        threads = scatter_owners(self._sizes, vectors, cut) * cut.share
        return scatter_program(self._dtype, modes, vectors, cut), threads, ""

    def scatter(
        self,
        points: DeviceArray,
        point_step: int,
        vectors: Sequence[int],
        grid: DeviceArray,
        cell_step: int,
        column: int,
    ) -> None:
        """Write W^T points to the grid, in one launch."""
        self._run("scatter", points, point_step, vectors, grid, cell_step, column, b"")

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
        """Write alpha W grid to the points, or add it, in one launch."""
        if self._count:
            scalars = self._scalars(alpha, accumulate)
            self._run("gather", points, point_step, vectors, grid, cell_step, column, scalars)

    def _run(
        self,
        kind: str,
        points: DeviceArray,
        point_step: int,
        vectors: Sequence[int],
        grid: DeviceArray,
        cell_step: int,
        column: int,
        scalars: bytes,
    ) -> None:
        check_device(self._device, points, grid)
        first, itemsize = vectors[0], self._dtype.itemsize
        apart = tuple(place - first for place in vectors)
        with device_errors():
            launch = self._launch(kind, point_step, cell_step, apart)
            addresses = points.data.ptr + first * itemsize, grid.data.ptr + column * itemsize
            launch(ready_stream(self._device), addresses, scalars)
